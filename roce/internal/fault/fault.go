// Package fault tells faults on memory from other panics. After debug.SetPanicOnFault a
// goroutine that touches memory which is not there (SIGSEGV), or which its file has not
// (SIGBUS), panics, and who recovers goes on. Without it the process ends.
package fault

import "runtime"

// Addr returns the address of the access that made v, what recover returned, and whether
// it was such a fault. An access through nil is not: that is a mistake of the program.
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
