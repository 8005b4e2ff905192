// Package mr is memory registration: who may touch which bytes, and the touching.
//
// A [Memory] is what gets registered: bytes of this process ([Bytes], or memory
// of package hostmem), or something slower that is reached by calls. A [Table]
// holds a device's protection domains ([PD]) and regions ([Region]) and hands out
// their keys. The data path then goes
//
//	Table.Resolve, Table.Check   SGEs or a peer's address -> checked Spans
//	Gather                       Spans -> the payload of a packet
//	Scatter                      the payload of a packet -> Spans
//	Span.CompareSwap, FetchAdd   atomics
//
// A [Span] that passed its check stays a name, not a permission: Gather, Scatter
// and the atomics look again whether its region is still registered. An L_Key and
// the R_Key of a region are the same number, as in rdma_rxe.
//
// Direct memory is written in the call. For other memory, Scatter appends a
// [Placement] to a list; somebody who may block carries it out ([Placement.Do]),
// and the protocol waits for the outcome. Reading other memory is done in the
// call of Gather.
//
// Tables may be used by several goroutines at once: lookups take no lock. Nothing
// on the data path allocates. Package hostmem makes memory that processes share;
// package mrtest has memory for tests that completes late and fails at will.
package mr
