//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestDemoDaemonOrder: what a daemon has captured and what the programs have noted are drawn causes first, in every
// run. What a busy machine repeats does not matter: the first of each is looked for.
func TestDemoDaemonOrder(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	want := [][]string{
		{"post RECV", "SEND First", "SEND Middle", "SEND Last", "completion: RECV"},
		{"post SEND", "SEND First", "SEND Last", "ACK psn=102", "completion: SEND"},
		{"post RDMA WRITE", "WRITE Only psn=103", "WRITE Only psn=105", "ACK psn=105", "completion: RDMA WRITE"},
		{"post RDMA READ", "READ Request", "READ Response First", "READ Response Last", "completion: RDMA READ"},
		{"post COMPARE", "CmpSwap psn=109", "ATOMIC ACK psn=109", "completion: COMPARE", "post FETCH",
			"FetchAdd psn=110", "ATOMIC ACK psn=110", "completion: FETCH"},
	}
	for range require.Rounds(2, 5) {
		// In ASCII nothing of a ladder is broken into several lines but labels, behind their PSNs.
		text := success(t, append([]string{"demo", "--ascii"}, append(d.client, d.admin...)...)...)
		_, ladders, _ := strings.Cut(text, "\n1. ")
		for _, chain := range want {
			at := 0
			for _, row := range chain {
				first := strings.Index(ladders, row)
				if first < at {
					t.Fatalf("%q is not behind what causes it (%q):\n%s", row, chain, text)
				}
				at = first + len(row)
			}
		}
	}
}
