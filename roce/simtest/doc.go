// Package simtest tests programs that use RDMA in a simulation: hosts with software devices, the network between them,
// and time. A test of a protocol over package rdmacm, rsocket or plain verbs runs on a network that loses, delays,
// reorders or damages packets, takes no longer than its computation, and can be repeated from its seed:
//
//	func TestTransfer(t *testing.T) {
//		c := simtest.Config{Seeds: 20, Fault: wrap.FaultConfig{Drop: 0.05}}
//		simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
//			client, server := n.Hosts[0], n.Hosts[1]
//			go serve(t.Context(), server.CM(), server.At("7471"))
//			if err := transfer(t.Context(), client.CM(), server.At("7471")); err != nil {
//				t.Error(err)
//			}
//		})
//	}
//
// A test that fails prints the seed, how to repeat it, and the last packets as a ladder diagram.
//
// # Time
//
// Each simulation is a bubble of testing/synctest: package time shows virtual time to all goroutines that the test
// starts, and the time moves on only while all of them wait. So they must wait for completions (ib.WaitOne, CQ.Wait)
// and not poll in a loop: a loop never lets the time move. Channels, contexts and timers must be made in the
// simulation. synctest.Wait belongs to the simulation: tests do not call it. Names of hosts and services cannot be
// looked up: the system's resolver has threads of its own. When the function of the test has returned, the context of
// its T ends, its cleanup functions run, and the hosts are closed; that must end all goroutines.
//
// # Repetition
//
// One goroutine moves the simulation on (loop.go): it lets the devices take turns in a fixed order, one at a time, and
// after each turn lets the goroutines that were woken run until all wait again. The process uses one processor
// meanwhile (GOMAXPROCS), so that the Go scheduler runs goroutines in the order in which they are woken. With one seed
// two runs send the same packets at the same times (Net.Digest). This is not so under the race detector, which makes
// the scheduler choose at random, and for programs that depend on the order of a map or on the choice of a select.
//
// # The network
//
// All hosts are on one network without a bandwidth limit. Config.Fault is the path of what each host sends,
// Config.Inbound that of what arrives at each host; with a Rate the latter is a bottleneck that its senders share.
// Host.SetFault and Host.SetInbound change them. A host can be cut off (Unplug), stand still (Stop), and lose its
// memory (Reboot).
//
// # Daemons
//
// Package daemontest puts a daemon on a host, whose clients are devices for the same tests.
package simtest
