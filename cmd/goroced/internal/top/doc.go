// Package top shows what the queue pairs of a running daemon do: rates, round trips, what was sent again and why they
// have failed, for each queue pair or each process, in the manner of top(1).
//
// Data flow one way. A Source returns the queue pairs with their counters. Two Samples make Rows: rates of what
// happened between them. A View selects and sorts rows and turns them into lines of cells, which Print writes to a file
// or a pipe and Show draws on a terminal.
package top
