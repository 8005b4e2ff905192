package device_test

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/mem"
)

// drawnNumbers opens a device, and returns the QP numbers and the keys that it allocates.
func drawnNumbers(t *testing.T, seed uint64) (qpns []ib.QPN, keys []ib.Key) {
	t.Helper()
	dev, err := device.Open(mem.NewNetwork().Open([]ib.GID{gidA}, mem.Options{}), device.Options{Manual: true,
		Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 8})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		q, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegMR(ib.MRInit{Buf: make([]byte, 8)})
		if err != nil {
			t.Fatal(err)
		}
		qpns, keys = append(qpns, q.Num()), append(keys, mr.RKey())
	}
	return qpns, keys
}

// TestNumbersAreDrawn: QP numbers and keys of a device are not close to each other, so that some
// do not help to guess others, and another device has others. With a seed they are repeatable.
func TestNumbersAreDrawn(t *testing.T) {
	qpns, keys := drawnNumbers(t, 0)
	otherQPNs, otherKeys := drawnNumbers(t, 0)
	if slices.Equal(qpns, otherQPNs) || slices.Equal(keys, otherKeys) {
		t.Error("two devices have the same numbers")
	}
	near := func(what string, list []uint32) {
		slices.Sort(list)
		n := 0
		for i := range list[1:] {
			if list[i+1]-list[i] < 16 { // by chance, of 100 among 2^24, one in 100 runs
				n++
			}
		}
		if n > 3 {
			t.Errorf("%d of 100 %s lie beside another one, want at most 3: %#x", n, what, list)
		}
	}
	var low, index []uint32
	for i := range qpns {
		low, index = append(low, uint32(qpns[i])), append(index, uint32(keys[i]>>8))
	}
	near("QP numbers", low)
	near("indices of keys", index)

	qpns, keys = drawnNumbers(t, 7)
	if again, keysAgain := drawnNumbers(t, 7); !slices.Equal(qpns, again) || !slices.Equal(keys, keysAgain) {
		t.Error("with a seed the numbers do not repeat")
	}
}
