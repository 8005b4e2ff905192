package ring

import (
	"errors"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestSharedRings checks that the rings of no entries accept and hold nothing, and that
// goroutines may use them concurrently (under the race detector).
func TestSharedRings(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, r := NoSend(), NoRecv()
			var send ib.SendWR
			var recv ib.RecvWR
			s.Prepare(&send)
			r.Prepare(&recv)
			if err := s.Push(&ib.SendWR{Opcode: ib.WRSend}); !errors.Is(err, ib.ErrQueueFull) {
				t.Errorf("push to the send ring: %v, want %v", err, ib.ErrQueueFull)
			}
			if err := r.Push(&ib.RecvWR{}); !errors.Is(err, ib.ErrQueueFull) {
				t.Errorf("push to the receive ring: %v, want %v", err, ib.ErrQueueFull)
			}
			if s.Publish() || r.Publish() {
				t.Error("a doorbell for nothing")
			}
			if ok, err := s.Pop(&send); ok || err != nil {
				t.Errorf("pop from the send ring: %v, %v; want false and no error", ok, err)
			}
			if ok, err := r.Pop(&recv); ok || err != nil {
				t.Errorf("pop from the receive ring: %v, %v; want false and no error", ok, err)
			}
			if s.Entries() != 0 || r.Entries() != 0 || s.Len() != 0 || r.Available() != 0 {
				t.Errorf("entries %d, %d, of which %d, %d wait; want none", s.Entries(), r.Entries(), s.Len(),
					r.Available())
			}
		})
	}
	all.Wait()
}
