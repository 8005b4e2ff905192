// Package host opens an RDMA device on this machine.
//
//	dev, err := host.Open(host.Options{NetIf: "eth0"})
//
// [Open] finds the addresses, which become the GID table, picks a link that
// carries frames to and from them, puts the wrappers around it that were asked
// for (faults, captures, traces), and hands the stack to a *roce.Device, which is
// an ib.Device. From then on the device's port follows the interface. [Interfaces]
// lists what there is to choose from.
//
// Files: host.go opens and stacks, choose.go picks the link, netif.go knows the
// network interfaces, watch.go follows one, live.go reaches devices that run.
package host
