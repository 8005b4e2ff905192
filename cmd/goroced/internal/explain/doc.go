// Package explain shows the rules of the RoCE protocol, for `goroced explain`. Most run a script of qp/testdata against
// the real state machine and draw what happens as a ladder; those about packets, the connection manager and multicast
// run other packages.
//
// [List] names the rules, [Rule] explains one, [File] runs a script of the user's own.
package explain
