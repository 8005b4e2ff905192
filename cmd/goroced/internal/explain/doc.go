// Package explain shows the rules of the RoCE protocol, for `goroced explain`. Most run a script of qp/testdata against
// the real state machine and draw what happens as a ladder; those about packets, the connection manager and multicast
// run other packages.
//
// [List] names the rules, [Rule] explains one, [File] runs a script of the user's own. [Course] lists the chapters of a
// course (chapters.go) that plays rules in an order to learn them in, [Glossary] explains words.
package explain
