// Package neigh gets from the kernel, over netlink, what a driver that builds its own Ethernet frames must know: which
// interface has an address ([Holding]), the route to an address ([Routes]), and the destination MAC address ([Table]).
// Routing and neighbour discovery are the kernel's. [WatchLink] follows changes of an interface. Its API is
// not stable.
//
// All functions refer to the network namespace of the calling thread; [Namespace] allows returning to one.
package neigh
