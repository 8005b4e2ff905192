// Package host opens an RDMA device on this machine.
//
//	dev, err := host.Open(host.Options{NetIf: "eth0"})
//
// [Open] finds the addresses, which become the GID table, chooses a link for them, adds the requested wrappers (faults,
// captures, traces), and opens a roce.Device, which is an ib.Device, on it. From then on the device's port follows the
// interface. [Interfaces] returns the interfaces to choose from.
//
// Files: host.go opens devices and stacks links, choose.go chooses the link, netif.go finds network interfaces,
// watch.go follows one, paths.go finds path MTUs, hearing.go passes ICMP errors to the device, live.go reaches running
// devices.
package host
