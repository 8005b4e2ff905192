// Package hostmem allocates memory from Linux for registration and for rings: page aligned, outside the Go heap, and if
// wanted shared with another process.
//
// The process that shares memory calls [Alloc] and passes [Buffer.FD] to the other, which calls [Map]. The memory is a
// memfd sealed with F_SEAL_SHRINK: without the seal either process could truncate the file, and the other would be
// killed by SIGBUS at its next access.
package hostmem
