// Package client lets programs use a device of the daemon: [Dial] returns an ib.Device.
//
//	dev, err := client.Dial(ctx, client.Options{}) // the daemon that Find finds, its first device
//
// host.Any takes a device of the daemon or, where there is none with the address, one of the program's own.
//
// Verbs that create, modify or query objects are requests to the daemon (control.go). Posting,
// polling and arming only access rings in memory shared with the daemon (qp.go, cq.go).
//
// Memory from [Alloc] is a memfd, which the daemon maps when it is registered. Memory of rings and doorbells is, too.
// Other memory the daemon reads and writes by system calls. SENDs and WRITEs of up to 64 bytes from there travel in the
// work request (short.go), so posting one reads its payload: memory that a program has unmapped since it was registered
// is a fault then.
//
// A goroutine for the connection, and one for each socket of events, wait for the daemon (abi.Conn, abi.File), and hand
// on what comes by channels. Verbs wait for those, up to 30 seconds for an answer; one at a time has a request under
// way (turn.go). Waits for completions and events have no limit but their context.
//
// When the daemon ends, waiting calls and further calls return an error that matches [ErrGone].
package client
