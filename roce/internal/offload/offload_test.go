package offload

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/wire"
)

// begin puts a destination on trial.
func begin(d *Trial) {
	for range misses {
		d.sampleLost()
	}
}

func TestTrialBegins(t *testing.T) {
	var d Trial
	if d.sampleLost() || d.on {
		t.Error("one miss begins a trial")
	}
	d.sampleArrived()
	if d.sampleLost() || d.on {
		t.Error("two misses that do not follow each other begin a trial")
	}
	if !d.sampleLost() || !d.on || d.sampleLost() {
		t.Error("the second miss in succession must begin a trial, the third is no news")
	}
}

// TestTrial takes a destination through a trial, step by step: "lost" and "here"
// are the outcomes of a pair, "otherLoss" is the loss of another packet, "clean" the arrival of
// packets. A pair is sent whenever one is due.
func TestTrial(t *testing.T) {
	six := []string{"clean", "lost", "clean", "lost", "clean", "lost", "clean", "lost", "clean", "lost", "clean",
		"lost"}
	for _, tt := range []struct {
		name      string
		steps     []string
		on, guilt bool
	}{
		{"six pairs lost and nothing else", six, true, true},
		{"five are not enough", six[:10], true, false},
		{"one pair arrives", append(six[:10:10], "clean", "here"), false, false},
		{"a pair arrives late", []string{"clean", "here", "begin", "clean", "lost"}, true, false},
		{"a loss of another kind begins the count anew", append(append(six[:10:10], "otherLoss"), six[2:]...), true,
			false},
		{"and six more end it", append(append(six[:10:10], "otherLoss"), six...), true, true},
		{"without packets that arrive there is no pair", []string{"otherLoss", "otherLoss", "otherLoss"}, true, false},
	} {
		var d Trial
		begin(&d)
		guilt := false
		for i, step := range tt.steps {
			switch step {
			case "begin":
				begin(&d)
			case "clean":
				d.confirmed(cleanPSNs - 1)
				if d.due() {
					t.Fatalf("%s: step %d: a pair is due after %d PSNs", tt.name, i, d.clean)
				}
				d.confirmed(1)
				if !d.due() || d.sendPair() == 0 || d.due() {
					t.Fatalf("%s: step %d: no pair is due, or two: %+v", tt.name, i, d)
				}
			case "lost":
				guilt = d.pairLost()
			case "here":
				d.End()
			case "otherLoss":
				d.otherLoss()
			}
		}
		if d.on != tt.on || guilt != tt.guilt {
			t.Errorf("%s: on trial %v, proven %v; want %v, %v", tt.name, d.on, guilt, tt.on, tt.guilt)
		}
	}
}

// TestTrialLossRates sends many packets at each of many loss rates. Every loss begins a
// trial, and no trial proves that runs are the cause.
func TestTrialLossRates(t *testing.T) {
	for percent := 1; percent < 100; percent += 4 {
		rng := rand.New(rand.NewPCG(uint64(percent), 4))
		lost := func() bool { return rng.IntN(100) < percent }
		var d Trial
		for range 200_000 {
			switch {
			case !d.due() && lost():
				begin(&d)
				d.otherLoss()
			case !d.due():
				d.confirmed(1)
			case d.sendPair() != 0 && !lost() && !lost():
				d.End()
			default:
				if d.pairLost() {
					t.Fatalf("%d %% loss, seed %d, prove that runs do not arrive", percent, percent)
				}
			}
		}
	}
}

// A pair whose QP makes no more progress must not block the trial, and its outcome must
// not count once another pair was sent.
func TestTrialPairForgotten(t *testing.T) {
	var d Trial
	begin(&d)
	d.confirmed(cleanPSNs)
	first := d.sendPair()
	d.forget(first)
	if !d.due() {
		t.Error("no pair is due after the first was forgotten")
	}
	second := d.sendPair()
	d.forget(first)
	if d.due() {
		t.Error("forgetting the first pair gave up the second")
	}
	d.confirmed(givenUp * cleanPSNs)
	if !d.due() || d.sendPair() == second {
		t.Error("the outcome of the second pair stays unknown, and no third pair is due")
	}
}

func TestSample(t *testing.T) {
	const from, psn = ib.PSN(0xFFFFFF), ib.PSN(0)
	then := qp.Progress{Until: 0xFFFFF0, Repeats: 3}
	for _, tt := range []struct {
		name string
		now  qp.Progress
		want outcome
	}{
		{"nothing new", then, unknown},
		{"what was before arrived", qp.Progress{Until: from, Repeats: 3}, unknown},
		{"the packet before it arrived", qp.Progress{Until: psn, Repeats: 3}, unknown},
		{"it arrived", qp.Progress{Until: psn + 1, Repeats: 3}, arrived},
		{"it is missing", qp.Progress{Until: psn, Repeats: 4, From: psn, Lost: true}, missed},
		{"the whole run is missing", qp.Progress{Until: from, Repeats: 4, From: from, Lost: true}, missed},
		{"something before is missing", qp.Progress{Until: 0xFFFFF8, Repeats: 4, From: 0xFFFFF8, Lost: true}, void},
		{"something later is missing", qp.Progress{Until: psn + 5, Repeats: 4, From: psn + 5, Lost: true}, arrived},
		{"it found no receive", qp.Progress{Until: psn, Repeats: 4, From: psn}, void},
	} {
		w := sample{set: true, from: from, psn: psn}
		if got := w.observe(&then, &tt.now); got != tt.want {
			t.Errorf("%s: outcome %d, want %d", tt.name, got, tt.want)
		}
	}
	if got := new(sample).observe(&then, &qp.Progress{Until: 5, Repeats: 4, From: 5, Lost: true}); got != unknown {
		t.Errorf("no sample: outcome %d, want none", got)
	}
}

// TestAcksAlone: NAKs go alone, because they are not retransmitted, and so do ACKs after
// a lost ACK: each time twice as many.
func TestAcksAlone(t *testing.T) {
	var o QP
	nak := qp.TxPacket{}
	nak.AETH.Syndrome = wire.NAKRemoteAccess
	if !o.ackAlone(&nak) {
		t.Error("a NAK does not go alone")
	}
	ack := func(again bool) bool { return o.ackAlone(&qp.TxPacket{Again: again}) }
	if ack(false) {
		t.Error("an ACK goes alone without a reason")
	}
	for want, i := acksAloneMin, 0; i < 20; want, i = min(2*want, acksAloneMax), i+1 {
		n := 0
		for alone := ack(true); alone; alone = ack(false) {
			n++
		}
		if n != want {
			t.Fatalf("miss %d: %d ACKs go alone, want %d", i, n, want)
		}
	}
}
