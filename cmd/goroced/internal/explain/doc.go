// Package explain shows the rules of the RoCE protocol, one by one: it runs a
// script of qp/testdata against the real state machine and draws what happens as
// a ladder. That is what `goroced explain` prints.
//
// [List] names the rules, [Rule] explains one.
package explain
