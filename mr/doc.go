// Package mr is memory registration: who may touch which bytes, and the touching.
//
// A [Memory] is what gets registered: bytes of this process ([Bytes], or memory
// of package hostmem), or something slower that is reached by calls. A [Table]
// holds a device's protection domains ([PD]), regions ([Region]) and memory windows
// ([Window]), and hands out their keys:
//
//	Table.Register, Reregister, Deregister   a Memory <-> a Region
//	Table.AllocWindow, FreeWindow            a Window, whose key opens nothing yet
//	Table.Bind                               opens a piece of a Region by the Window's key
//	Table.Invalidate                         revokes the key of a Region or Window
//
// The data path then goes
//
//	Table.Resolve, Check             SGEs by their L_Keys -> checked Spans
//	Table.CheckRemote                a peer's R_Key and address -> a checked Span
//	Gather                           Spans -> the payload of a packet
//	Scatter                          the payload of a packet -> Spans
//	Span.CompareSwap, FetchAdd, ...  atomics
//	Span.Flush, Region.Flush         waits for visibility, or for persistence (Persister)
//
// A [Span] that passed its check stays a name, not a permission: Gather, Scatter
// and the atomics look again whether its region is still registered. An L_Key and
// the R_Key of a region are the same number, as in rdma_rxe. What a bound window
// opens is a Region too, with key, address and rights of its own; only CheckRemote
// finds it, and it ends with the binding, so all that comes after is alike.
//
// Direct memory is written in the call. For other memory, Scatter appends a
// [Placement] to a list; somebody who may block carries it out ([Placement.Do]),
// and the protocol waits for the outcome. Reading other memory is done in the
// call of Gather.
//
// Tables may be used by several goroutines at once: lookups take no lock, all that
// changes the table takes one. A table of several shards ([NewSharedTable]) also
// makes revoking by request wait for what other shards are doing (guard.go). Nothing on the data path allocates. Package hostmem
// makes memory that processes share; package mrtest has memory for tests that
// completes late and fails at will.
package mr
