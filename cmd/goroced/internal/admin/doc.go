// Package admin is HTTP on a Unix socket to inspect a running daemon ([RegisterView]), to capture the traffic of its
// devices, and to apply faults to it ([Register]). These functions register handlers in the daemon. [Client] calls them
// for the subcommands, and the Print functions format the answers like rdma-core's and iproute2's tools.
//
//	GET    /v1/status                               state of the daemon (of package serve, not of this one)
//	GET    /v1/devices                              [Device ...]
//	GET    /v1/qps                                  [server.QPInfo ...]
//	GET    /v1/mrs                                  [server.MRInfo ...]
//	GET    /v1/cm                                   [server.CMInfo ...]
//	GET    /v1/failures                             [server.FailureInfo ...]
//	GET    /v1/why?device=&qp=                      [Why ...]
//	GET    /v1/why/capture?device=&qp=&next=        pcapng, of the latest failure or, with next, the next one
//	GET    /v1/stats                                {"DEVICE": {"sent_pkts": 0 ...} ...}
//	GET    /v1/capture?device=&qp=&peer_qp=&peer=   pcapng, until the client goes away
//	GET    /v1/faults?device=                       {"faults": [Fault ...]}
//	POST   /v1/faults                               a Fault in, the Fault with ID and seed out
//	DELETE /v1/faults?device=&id=                   {"removed": 1}; without id all of them
//
// device may be omitted if there is only one, and to list or remove the faults of all. QP numbers are decimal, or
// hexadecimal with 0x. An answer other than 2xx has {"error": "what was wrong, and what is allowed"}.
//
// Who may use [Register]'s handlers can read all traffic of the devices, and disrupt it. Package serve restricts them
// to root and the daemon's own user.
package admin
