// Package neigh asks the kernel, over netlink, what a driver that builds its own
// Ethernet frames must know: which interface holds an address ([Holding]), where
// packets to an address go ([RouteTo]), and what MAC address they are sent to
// ([Table]). The kernel does all routing and neighbour discovery; this package
// only asks. [WatchLink] tells what becomes of an interface.
//
// Everything refers to the network namespace of the calling thread; [Namespace]
// goes back to one later.
package neigh
