// Package daemontest tests programs that use the device of a daemon, in a simulation of package simtest:
//
//	simtest.Run(t, simtest.Config{Seeds: 20}, func(t *testing.T, n *simtest.Net) {
//		daemon := daemontest.Start(t, n.Hosts[1], server.Options{OwnProcesses: true})
//		go serve(t.Context(), daemon.Client(t))
//		...
//	})
//
// The daemon is the server of goroced (package server), and its clients are those of package client. Between them is
// all that is between them otherwise: messages on sockets, memfds with rings and doorbells, eventfds. But no goroutine
// waits for a descriptor (abi.Local), so virtual time passes while clients and sessions wait: the daemon's limits of
// time cost nothing, and runs with one seed send the same packets (simtest.Net.Digest).
//
// All clients are of one process and one user, those of the test. That process is not watched for its end: to let a
// client die, close its device, which is the end of its connection. Memory that client.Alloc has not returned can be
// registered if the daemon has server.Options.OwnProcesses.
package daemontest
