package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// timer names one of a QP's deadlines.
type timer int

const (
	timerAck        timer = iota // local ACK timeout of the oldest packet in flight
	timerProbe                   // an answer is overdue: send a tail probe
	timerRNR                     // end of the delay that an RNR NAK asked for
	timerDelayedACK              // end of the delay of the pending ACK
	timerPace                    // the pacer allows the next packet
	timerSACK                    // the next SACK may leave
	timerReorder                 // the end of a reordering window
	timerResponse                // the next READ response may leave
	numTimers
)

// timerTable is a table of deadlines; unset ones are driver.Never.
type timerTable [numTimers]ib.Instant

func (t *timerTable) set(k timer, at ib.Instant) { t[k] = at }
func (t *timerTable) clear(k timer)              { t[k] = driver.Never }
func (t *timerTable) isSet(k timer) bool         { return t[k] != driver.Never }

func (t *timerTable) clearAll() {
	for k := range t {
		t[k] = driver.Never
	}
}

// expired reports whether k has expired, and if so clears it.
func (t *timerTable) expired(k timer, now ib.Instant) bool {
	if now < t[k] {
		return false
	}
	t[k] = driver.Never
	return true
}

func (t *timerTable) earliest() ib.Instant {
	e := t[0]
	for _, at := range t[1:] {
		e = min(e, at)
	}
	return e
}
