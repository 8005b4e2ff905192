// Package explain shows the rules of the RoCE protocol: it runs a script of qp/testdata against the real state machine
// and draws what happens as a ladder. `goroced explain` prints that.
//
// [List] names the rules, [Rule] explains one.
package explain
