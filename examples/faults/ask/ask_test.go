package ask

import (
	"flag"
	"testing"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
)

var tries = flag.Int("tries", 12, "how many times a question is asked")

// TestSquare: on twenty networks that lose 5 % of all packets, each question gets its answer.
func TestSquare(t *testing.T) {
	lossy := simtest.Config{Seeds: 20, Fault: wrap.FaultConfig{Drop: 0.05}}
	simtest.Run(t, lossy, func(t *testing.T, n *simtest.Net) {
		ctx, client, server := t.Context(), n.Hosts[0], n.Hosts[1]
		l, err := server.CM().Listen(ctx, server.At("7471"), rdmacm.ListenConfig{Config: Config})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(ctx); err == nil {
				_ = Serve(ctx, c)
			}
		}()
		c, err := client.CM().Dial(ctx, server.At("7471"), Config)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint8(100) {
			if got, err := Square(ctx, c, i, *tries); err != nil || got != uint16(i)*uint16(i) {
				t.Fatalf("the square of %d: got %d, %v; want %d", i, got, err, uint16(i)*uint16(i))
			}
		}
	})
}
