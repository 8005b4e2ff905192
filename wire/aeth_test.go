package wire

import "testing"

func TestSyndromeKinds(t *testing.T) {
	for i := range 256 {
		s := Syndrome(i)
		kind := i >> 5
		if s.IsAck() != (kind == 0) || s.IsRNR() != (kind == 1) || s.IsNAK() != (kind == 3) {
			t.Errorf("%#02x: ACK %v, RNR %v, NAK %v; want only that of kind %d", i, s.IsAck(), s.IsRNR(), s.IsNAK(),
				kind)
		}
		if int(s.Code()) != i&31 {
			t.Errorf("%#02x: code %d, want %d", i, s.Code(), i&31)
		}
	}
	for code := range uint8(32) {
		if s := RNRNak(code); !s.IsRNR() || s.Code() != code {
			t.Errorf("RNRNak(%d) = %#02x, want an RNR NAK of that code", code, uint8(s))
		}
	}
	if s := RNRNak(32); s != 0x20 {
		t.Errorf("RNRNak cuts its code to 5 bits: got %#02x, want 0x20", uint8(s))
	}
}

// IBTA 9.7.7.2: code c stands for 0, 1, 2, 3, 4, 6, 8, 12 ...: from code 3 on, 2^k
// and 1.5 * 2^k by turns.
func TestCredits(t *testing.T) {
	for code := range 31 {
		want := code
		if code >= 3 {
			want = 2 << (code/2 - 1)
			if code%2 == 1 {
				want = 3 << (code/2 - 1)
			}
		}
		n, ok := Syndrome(code).Credits()
		if !ok || n != want {
			t.Errorf("code %d: %d, %v; want %d", code, n, ok, want)
		}
	}
	for _, s := range []Syndrome{AckNoCredits, RNRNak(3), NAKSequence, 0x40, 0x80} {
		if n, ok := s.Credits(); ok {
			t.Errorf("%v grants %d credits, want none", s, n)
		}
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 4: 4, 5: 4, 6: 6, 7: 6, 1000: 768, 32767: 24576, 32768: 32768,
		1 << 30: 32768} {
		if got, ok := AckCredits(n).Credits(); !ok || got != want {
			t.Errorf("AckCredits(%d) grants %d, want %d", n, got, want)
		}
	}
}

// IBTA 9.7.5.2.8, in milliseconds as the specification prints it.
func TestRNRDelay(t *testing.T) {
	want := []float64{655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
		2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52}
	for code, ms := range want {
		if got := float64(RNRDelay(uint8(code))) / 1e6; got != ms {
			t.Errorf("code %d: %g ms, want %g", code, got, ms)
		}
	}
}

func TestAckTimeout(t *testing.T) {
	for code, want := range map[uint8]int64{0: 0, 1: 8192, 14: 67_108_864, 17: 536_870_912, 31: 8_796_093_022_208,
		32: 0} {
		if got := AckTimeout(code); got != want {
			t.Errorf("code %d: %d ns, want %d", code, got, want)
		}
	}
}

func TestSyndromeString(t *testing.T) {
	for s, want := range map[Syndrome]string{
		AckNoCredits:      "ACK",
		AckCredits(6):     "ACK, 6 credits",
		RNRNak(12):        "RNR NAK, 0.64 ms",
		NAKSequence:       "NAK, PSN sequence error",
		NAKInvalidRequest: "NAK, invalid request",
		NAKRemoteAccess:   "NAK, remote access error",
		NAKRemoteOp:       "NAK, remote operational error",
		NAKInvalidRD:      "NAK, invalid RD request",
		0x65:              "Syndrome(0x65)",
		0x40:              "Syndrome(0x40)",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#02x is %q, want %q", uint8(s), got, want)
		}
	}
}
