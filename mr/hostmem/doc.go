// Package hostmem gets memory from Linux for registration and for rings: page
// aligned, outside the Go heap, and where wanted shared with another process.
//
// The side that shares calls [Alloc] and passes [Buffer.FD] on; the other side
// calls [Map]. Sharing rests on memfds sealed with F_SEAL_SHRINK: without the seal
// either side could truncate the file, and the other would die of SIGBUS at its
// next access.
package hostmem
