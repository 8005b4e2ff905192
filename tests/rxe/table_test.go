package rxe

import (
	"fmt"
	"testing"
)

// Values of a row's fields that are not numbers.
const (
	client  = "client" // goroced pingpong connects to the real tool
	server  = "server" // the real tool connects to goroced pingpong
	udp     = "udp"
	rawsock = "rawsock"
	v4      = "v4"
	v6      = "v6"
)

// row is one run of goroced pingpong against ibv_rc_pingpong on rdma_rxe.
type row struct {
	side, link, family string
	size, pathMTU, mtu int
	loss               float64 // percent of packets dropped, each way
	offload            bool    // segmentation offload at our end; without it single packets are lost
}

// rows holds the common cases and, in the second block, rows that complete every pair of
// values of two fields; TestRowsCoverPairs checks that.
var rows = []row{
	{client, udp, v4, 4096, 1024, 1500, 0, true},
	{server, udp, v4, 4096, 1024, 1500, 0, true},
	{client, udp, v6, 1 << 20, 1024, 1500, 0, true},
	{server, rawsock, v6, 1 << 20, 1024, 1500, 0, true},
	{client, udp, v4, 4096, 1024, 1500, 3, false},
	{server, udp, v6, 4096, 1024, 1500, 3, false},
	{client, udp, v6, 1 << 20, 4096, 9000, 3, false},
	{server, udp, v4, 1 << 20, 1024, 1500, 3, false},

	{server, udp, v6, 5001, 512, 1500, 0, false},
	{client, udp, v6, 1, 1024, 1500, 0, false},
	{client, udp, v6, 5001, 256, 1500, 0, true},
	{server, rawsock, v6, 4096, 256, 1500, 3, false},
	{server, rawsock, v4, 1, 512, 1500, 3, false},
	{server, rawsock, v4, 5001, 1024, 1500, 3, false},
	{client, udp, v4, 1 << 20, 1024, 1500, 3, true},
	{server, udp, v4, 1 << 20, 256, 9000, 0, false},
	{server, rawsock, v6, 1 << 20, 4096, 9000, 0, false},
	{client, rawsock, v4, 1, 256, 9000, 0, true},
	{server, rawsock, v4, 1 << 20, 512, 9000, 0, true},
	{client, udp, v4, 4096, 512, 9000, 0, true},
	{client, udp, v6, 4096, 2048, 9000, 0, true},
	{server, udp, v6, 1 << 20, 2048, 9000, 0, true},
	{server, rawsock, v4, 4096, 1024, 9000, 3, false},
	{client, rawsock, v4, 1, 2048, 9000, 3, false},
	{client, rawsock, v6, 1, 4096, 9000, 3, false},
	{server, rawsock, v6, 5001, 2048, 9000, 3, true},
	{client, udp, v4, 5001, 4096, 9000, 3, true},
	{server, udp, v4, 4096, 4096, 9000, 3, true},
}

// tool is the end of the real tool and our link: a plain run plays a row of each.
func (r row) tool() string { return r.side + "-" + r.link }

func (r row) name() string {
	return fmt.Sprintf("%s-%s-%s-size%d-pmtu%d-mtu%d-loss%g-offload=%v", r.side, r.link, r.family, r.size, r.pathMTU,
		r.mtu, r.loss, r.offload)
}

// possible reports whether a combination is useful: the path MTU must fit the wire, and a
// long message of small packets does not get through with go-back-N under loss.
func (r row) possible() bool {
	return (r.mtu >= 9000 || r.pathMTU <= 1024) && (r.loss == 0 || r.size < 1<<20 || r.pathMTU >= 1024)
}

// fields returns the row's values in order.
func (r row) fields() [8]any {
	return [8]any{r.side, r.link, r.family, r.size, r.pathMTU, r.mtu, r.loss, r.offload}
}

// values lists the possible values of each field.
var values = [8][]any{{client, server}, {udp, rawsock}, {v4, v6}, {1, 4096, 5001, 1 << 20},
	{256, 512, 1024, 2048, 4096},
	{1500, 9000}, {0.0, 3.0}, {true, false}}

func TestRowsCoverPairs(t *testing.T) {
	type pair struct {
		i, j int
		a, b any
	}
	covered := map[pair]bool{}
	for _, r := range rows {
		if !r.possible() {
			t.Errorf("row %v is not possible", r)
		}
		f := r.fields()
		for i := range f {
			for j := range i {
				covered[pair{i, j, f[i], f[j]}] = true
			}
		}
	}
	for i := range values {
		for j := range i {
			for _, a := range values[i] {
				for _, b := range values[j] {
					if i == 5 && j == 4 && a == 1500 && b.(int) > 1024 {
						continue
					}
					if !covered[pair{i, j, a, b}] {
						t.Errorf("no row has both %v and %v (fields %d and %d)", a, b, i, j)
					}
				}
			}
		}
	}
}
