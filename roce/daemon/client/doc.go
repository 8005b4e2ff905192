// Package client is a device of the daemon, for programs: [Dial] returns an ib.Device,
// and all that runs on one runs on it.
//
//	dev, err := client.Dial(ctx, client.Options{Socket: path})
//
// Verbs that make, change or ask are requests to the daemon (control.go). Posting,
// polling and arming touch memory that is shared with it, and no more: rings whose other
// end is the daemon's (qp.go, cq.go).
//
// Memory from [Alloc] is a memfd, which the daemon maps when it is registered.
//
// When the daemon ends, whoever waits or asks gets an error that matches [ErrGone].
package client
