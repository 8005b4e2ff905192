// Package lab runs real RoCEv2 peers: Linux guests under QEMU, with Debian's stock
// kernels, stock rdma-core, and rdma_rxe on their eth0.
//
// A Lab consists of two network namespaces and the guests:
//
//	HostNS                    WireNS                      guests
//	eth0 10.77.0.1 -- veth -- host ┐           ┌ tap1 -- vm 1: eth0 10.77.0.2, rxe0
//	     fd77::1                   ├── br0 ────┤
//	                               ┘           └ tap2 -- vm 2: eth0 10.77.0.3, rxe0
//
// The program under test runs in HostNS (Lab.HostCommand, HostCommandAs);
// captures and tools that look at the wire run in WireNS (Lab.WireCommand).
// Lab.SetMTU, SetLoss and SetOffload apply to the whole wire; Lab.Forward simulates a
// bad network to one guest, repeatably. A VM runs commands (Run, Output, Start) over a
// virtio-serial port, independently of the network, and reads attributes of rxe
// (GIDIndex, Counters, ActiveMTU).
//
// Tests share guests, since booting costs seconds:
//
//	func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
//
//	func TestPeer(t *testing.T) {
//		l := lab.Shared(t, lab.Linux61)
//		vm := l.VMs[0]
//		...
//	}
//
// Shared boots a lab the first time and resets the wire after each test, so
// tests that use it must not run in parallel. Start creates a separate Lab.
//
// A subtest that depends on a guest's speed is a [Row], which gets a second try.
//
// For use by hand, as root, this command boots a lab and reads commands for its guests:
//
//	go run ./tests/rxe/lab/cmd/rxelab -kernels 6.1,6.12
//
// # What it needs
//
// Root, an amd64 Debian 12, and what .ci/packages installs; Require skips a
// test where something is missing. Kernels and boot images are kept in
// /var/cache/goroce-lab, or in $GOROCE_LAB_CACHE. Kernels lists the peers that
// a test must hold against: 6.1, and with GOROCE_FULL=1 also 6.12. The guests
// are emulated without KVM, at a few percent of the machine's speed, so only ratios
// of times within the same guest are meaningful.
//
// # What it leaves
//
// Nothing. Labs have names of their own, so several can exist at once. Guests
// die with the process that started them, and a janitor process ends what runs
// in the namespaces and deletes them, whichever way that process ended.
package lab
