package waiting

import "runtime"

// Yield is what a loop that polls calls between two looks, so that others can run. Nil yields the processor. In virtual
// time, which stands still while a goroutine runs, tests set a function that sleeps.
type Yield func()

// Do yields.
func (y Yield) Do() {
	if y == nil {
		runtime.Gosched()
		return
	}
	y()
}
