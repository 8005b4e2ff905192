// Package admin is HTTP on a Unix socket to look at a running daemon ([RegisterView])
// and to disturb it: captures of its devices and faults on them ([Register]). These are
// handlers for the daemon; [Client] asks them for the subcommands, and the Print
// functions show the answers as rdma-core's and iproute2's tools would.
//
//	GET    /v1/devices                              [Device ...]
//	GET    /v1/qps                                  [server.QPInfo ...]
//	GET    /v1/mrs                                  [server.MRInfo ...]
//	GET    /v1/stats                                {"DEVICE": {"sent_pkts": 0 ...} ...}
//	GET    /v1/capture?device=&qp=&peer_qp=&peer=   pcapng, until the client goes away
//	GET    /v1/faults?device=                       {"faults": [Fault ...]}
//	POST   /v1/faults                               a Fault in, the Fault with ID and seed out
//	DELETE /v1/faults?device=&id=                   {"removed": 1}; without id all of them
//
// device may be left out where there is only one, and to list or remove the faults of all.
// QP numbers are decimal, or hexadecimal behind 0x. An answer other than 2xx holds
// {"error": "what was wrong, and what is allowed"}.
//
// Whoever may use [Register]'s handlers can read all traffic of the devices, and break it:
// package serve keeps them for root and the daemon's own user.
package admin
