package neigh

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// Namespace is a network namespace. The thread of a goroutine may be in another namespace than when it opened a link;
// Do runs a function in the original one.
type Namespace struct{ handle netns.NsHandle }

// CurrentNamespace returns the namespace of the calling thread. Close frees it. If /proc does not show namespaces, all
// threads are assumed to share one.
func CurrentNamespace() Namespace {
	handle, err := netns.Get()
	if err != nil {
		handle = netns.None()
	}
	return Namespace{handle}
}

// Do runs f in the namespace: on the calling thread if that is in it, which needs no privilege, otherwise on a thread
// that enters it, which needs CAP_SYS_ADMIN.
func (n Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here := CurrentNamespace()
	defer here.Close()
	if !n.handle.IsOpen() || here.handle.Equal(n.handle) {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := netns.Set(n.handle); err != nil {
			done <- fmt.Errorf("enter the network namespace of the link: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Close frees n.
func (n Namespace) Close() {
	if n.handle.IsOpen() {
		_ = n.handle.Close()
	}
}
