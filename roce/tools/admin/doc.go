// Package admin is HTTP on a Unix socket to look at a running daemon and to disturb
// it: captures of its devices and faults on them, as handlers for the daemon
// ([Register]) and as a [Client] for the subcommands.
//
//	GET    /v1/capture?device=&qp=&peer_qp=&peer=   pcapng, until the client goes away
//	GET    /v1/faults?device=                       {"faults": [Fault ...]}
//	POST   /v1/faults                               a Fault in, the Fault with ID and seed out
//	DELETE /v1/faults?device=&id=                   {"removed": 1}; without id all of them
//
// device may be left out where there is only one, and to list or remove the faults of all.
// QP numbers are decimal, or hexadecimal behind 0x. An answer other than 2xx holds
// {"error": "what was wrong, and what is allowed"}.
//
// Who may connect to the socket may read all traffic of the devices and break it: give
// it to the administrator only.
package admin
