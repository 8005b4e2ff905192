package roce_test

import (
	"errors"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// TestCloseWithWorkPosted closes devices at the moment at which work is posted: a
// doorbell that nobody answers any more must not keep the loop awake for ever.
func TestCloseWithWorkPosted(t *testing.T) {
	for range 100 {
		w := newLive(t, 4096)
		w.connect(ib.MTU1024, nil)
		closed := make(chan error, 1)
		go func() {
			_, err := w.a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: w.a.sge(0, 8)}})
			closed <- errors.Join(err, w.a.dev.Close())
		}()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Close did not return within 20 s")
		}
		w.b.dev.Close()
	}
}
