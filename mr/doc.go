// Package mr is memory registration: it decides who may access which bytes, and accesses them.
//
// A [Memory] is what gets registered: bytes of this process ([Bytes]), or something slower that is reached by calls. A
// [Table] holds a device's protection domains ([PD]), regions ([Region]) and memory windows ([Window]), and assigns
// their keys:
//
//	Table.Register, Reregister, Deregister   a Memory <-> a Region
//	Table.AllocWindow, FreeWindow            a Window, whose key opens nothing yet
//	Table.Bind                               opens a piece of a Region by the Window's key
//	Table.Invalidate                         revokes the key of a Region or Window
//
// The data path is
//
//	Table.Resolve, Check             SGEs by their L_Keys -> checked Spans
//	Table.CheckRemote                a peer's R_Key and address -> a checked Span
//	Gather                           Spans -> the payload of a packet
//	Scatter                          the payload of a packet -> Spans
//	Span.CompareSwap, FetchAdd, ...  atomics
//	Span.Flush, Region.Flush         waits for visibility, or for persistence (Persister)
//
// A [Span] has been checked, but is no permission: Gather, Scatter and the atomics look again whether its region is
// still registered. The L_Key and the R_Key of a region are the same number, as in rdma_rxe. What a bound window opens
// is a Region, too, with key, address and rights of its own. Only CheckRemote finds it, and it ends with the binding;
// apart from that it is used like any other Region.
//
// Direct memory is written by the call. For other memory, Scatter appends a [Placement] to a list; a goroutine that may
// block carries it out ([Placement.Do]), and the protocol waits for the outcome. Gather reads other memory by itself.
//
// Tables may be used by several goroutines at once: lookups take no lock, everything that changes the table takes one.
// In a table of several shards ([NewSharedTable]), a request that revokes a key also waits for accesses of other shards
// (guard.go). Nothing on the data path allocates. Package mrtest has memory for tests that completes late and fails
// when the test wants it to.
package mr
