package daemon

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/client"
	"github.com/goroce/goroce/tests/require"
)

// TestStuck has a client send memory that is never there: a page under userfaultfd that
// nobody resolves. Others go on. The daemon drops the client, and is rid of all that
// waited when the page comes, or the client goes.
func TestStuck(t *testing.T) {
	if !reachable() {
		require.Missing(t, "the daemon may not read other processes of its user: kernel.yama.ptrace_scope is not 0")
	}
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	target, err := newTenant(b.socket, shape{size: piece})
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	for _, resolved := range []bool{true, false} {
		before := a.settled()
		c := startChild(t, "stuck", job{Socket: a.socket})
		var refused string
		if c.hear(&refused); refused != "" {
			require.Missing(t, "userfaultfd for faults of the kernel (root, or vm.unprivileged_userfaultfd=1): %s", refused)
		}
		var peer card
		c.hear(&peer)
		target.qps = nil
		if err := errors.Join(target.addQPs(1), target.connect(peer, steadily)); err != nil {
			t.Fatal(err)
		}
		c.tell(target.card())
		var heard string
		c.hear(&heard) // the daemon reads the page
		others.goesOn(100)
		if c.hear(&heard); heard != client.ErrGone.Error() {
			t.Errorf("who sends memory that does not come hears %q, want %q", heard, client.ErrGone)
		}
		a.forgets(c.pid)
		if now := a.usage(); now.goroutines <= before.goroutines {
			t.Errorf("nobody waits for the page: %+v, %+v before", now, before)
		}
		others.goesOn(100)
		if resolved {
			c.tell("resolve")
			c.hear(&heard)
		} else {
			c.kill()
		}
		a.returnsTo(before)
		c.kill()
		if err := target.qps[0].Close(); err != nil {
			t.Error(err)
		}
	}
}

// stuck is the client of TestStuck.
func stuck(c *parent) {
	n, err := newTenant(c.Socket, shape{size: piece, process: true, qps: 1})
	must(err)
	fault, err := hang(n.buf)
	if err != nil {
		c.tell(err.Error())
		return
	}
	c.tell("")
	c.tell(n.card())
	var peer card
	c.hear(&peer)
	must(n.connect(peer, steadily))
	_, err = n.qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: n.sge(0, piece), RemoteAddr: peer.Addr, RKey: peer.Key}})
	must(err)
	must(fault.wait())
	c.tell("it waits")
	var wc [1]ib.WC
	if _, err = n.next(context.Background(), wc[:]); errors.Is(err, client.ErrGone) {
		err = client.ErrGone
	}
	c.tell(err.Error())
	var resolve string
	c.hear(&resolve)
	must(fault.resolve(n.buf))
	c.tell("done")
	c.hear(&resolve) // until it is killed
}

// userfault lets every access to some memory wait.
type userfault int

// Calls and structures of linux/userfaultfd.h.
const (
	uffdAPI      = 0xAA
	uffdMissing  = 1
	uffdioAPI    = 0xC018AA3F
	uffdioRegist = 0xC020AA00
	uffdioZero   = 0xC020AA04
)

func ioctl(fd userfault, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// hang lets every access to pages that are not there wait: the kernel's, too.
func hang(pages []byte) (userfault, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	u := userfault(fd)
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI}
	if err := ioctl(u, uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return 0, err
	}
	reg := struct{ start, length, mode, ioctls uint64 }{uint64(uintptr(unsafe.Pointer(&pages[0]))), uint64(len(pages)), uffdMissing, 0}
	return u, ioctl(u, uffdioRegist, unsafe.Pointer(&reg))
}

// wait waits for an access.
func (u userfault) wait() error {
	_, err := unix.Read(int(u), make([]byte, 32))
	return err
}

// resolve makes the pages zeros.
func (u userfault) resolve(pages []byte) error {
	z := struct {
		start, length, mode uint64
		zeroed              int64
	}{uint64(uintptr(unsafe.Pointer(&pages[0]))), uint64(len(pages)), 0, 0}
	err := ioctl(u, uffdioZero, unsafe.Pointer(&z))
	runtime.KeepAlive(pages)
	return err
}
