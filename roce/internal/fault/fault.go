// Package fault distinguishes memory faults from other panics. After debug.SetPanicOnFault a
// goroutine that touches memory which is not mapped (SIGSEGV), or lies beyond the end of its file
// (SIGBUS), panics and can recover. Without SetPanicOnFault the process ends.
package fault

import "runtime"

// Addr takes the value v that recover returned. It reports whether v is such a fault, and returns
// the address of the access. A nil dereference is not one: it is a bug in the program.
func Addr(v any) (addr uintptr, ok bool) {
	e, ok := v.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return 0, false
	}
	return e.Addr(), true
}
