package track

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
)

// Why is the reason of a retransmission. It is an index into Stats.Again.
type Why uint8

// Reasons.
const (
	WhyTimeout  Why = iota // the local ACK timeout has expired (IBTA 9.7.6.1.3)
	WhyNAK                 // a NAK for a PSN sequence error
	WhyRNR                 // an RNR NAK, after the delay that it asks for
	WhyResponse            // an implied NAK: a later response arrived while one was missing (IBTA 9.7.5.1.4)
	WhyGoBack              // an earlier packet was retransmitted, and this one follows it
	WhyProbe               // without any of those, sooner than ACK timeouts are: a probe, as goroce sends them
	numWhys     = iota
)

// String returns one word for the reason.
func (w Why) String() string {
	return [numWhys]string{"timeout", "nak", "rnr-nak", "missing-response", "go-back", "probe"}[w]
}

// timed reports whether a timer of the requester has expired: it has heard nothing.
func (w Why) timed() bool { return w == WhyTimeout || w == WhyProbe }

// Cause is the cause of a retransmission.
type Cause struct {
	Why Why
	// Packet is the NAK, the response that came too early, the retransmission that this one follows, or for a timeout
	// and a probe, the previous transmission.
	Packet int
	Wait   int64  // nanoseconds since Packet
	PSN    ib.PSN // the retransmitted PSN
}

// String describes the cause in a phrase.
func (c *Cause) String() string {
	switch c.Why {
	case WhyNAK:
		return fmt.Sprintf("after NAK #%d", c.Packet)
	case WhyRNR:
		return fmt.Sprintf("%s after RNR NAK #%d", trace.Elapsed(c.Wait), c.Packet)
	case WhyResponse:
		return fmt.Sprintf("implied NAK, response psn %d is missing", c.PSN)
	case WhyGoBack:
		return fmt.Sprintf("going back with #%d", c.Packet)
	case WhyProbe:
		return fmt.Sprintf("a probe %s after #%d", trace.Elapsed(c.Wait), c.Packet)
	}
	return fmt.Sprintf("timeout %s after #%d", trace.Elapsed(c.Wait), c.Packet)
}

// quiet is the pause, in nanoseconds, after which a retransmission is attributed to a timer, whatever came before:
// requesters react to NAKs at once and retransmit without pauses, and timeouts below 4.096 us * 2^10 are rare.
const quiet = 4e6

// whyAgain returns the cause of the retransmission of request psn by packet num. old is the earlier transmission.
func (r *requests) whyAgain(num int, at ib.Instant, psn ib.PSN, old *entry) Cause {
	c := Cause{Why: WhyTimeout, Packet: old.num, Wait: int64(at - old.at), PSN: psn}
	if r.again && psn == r.cursor && at-r.lastAt < quiet {
		c.Why, c.Packet, c.Wait = WhyGoBack, r.episode, int64(at-r.episodeAt)
		return c
	}
	r.episode, r.episodeAt = num, at
	nak := r.nak
	r.nak.num = 0
	switch {
	case nak.num > 0 && nak.rnr:
		c.Why, c.Packet, c.Wait = WhyRNR, nak.num, int64(at-nak.at)
	case nak.num > 0 && at-nak.at < quiet:
		c.Why, c.Packet, c.Wait = WhyNAK, nak.num, int64(at-nak.at)
	case old.msg.Verb.answered() && r.latest.num > old.num && r.latest.psn.After(psn) && at-r.latest.at < quiet:
		c.Why, c.Packet, c.Wait = WhyResponse, r.latest.num, int64(at-r.latest.at)
	case c.Wait < quiet:
		c.Why = WhyProbe
	}
	return c
}

// lostFor returns the captured packet that cannot have arrived if the requester retransmits from psn on: the response
// with that PSN, or the ACK that covered it; 0 if there is none.
func (r *requests) lostFor(psn ib.PSN, old *entry) int {
	if old.msg.Verb.answered() {
		if resp := r.resp.find(psn); resp != nil && resp.num > old.num {
			return resp.num
		}
		return 0
	}
	if psn.Before(r.unacked) && r.ackNum > old.num {
		return r.ackNum
	}
	return 0
}
