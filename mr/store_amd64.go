//go:build !race

package mr

// amd64 makes stores visible in program order, so the last store can be a plain one. An atomic store is an XCHG, which
// waits for the stores before it; for packets of 1 KiB that would take a tenth of the time. The functions are not
// inlined, so the compiler cannot move other stores behind them.

//go:noinline
func store32(p *uint32, v uint32) { *p = v }

//go:noinline
func store64(p *uint64, v uint64) { *p = v }
