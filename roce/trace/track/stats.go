package track

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Stats counts the requests of a flow. Counters about responses are about responses to these requests; the response
// packets are in the opposite flow. First and Last are the times of the flow's first and latest packet.
type Stats struct {
	Packets   int           `json:"packets"` // of the flow, requests and responses
	Bytes     int64         `json:"bytes"`   // payload of these packets
	First     ib.Instant    `json:"first_ns"`
	Last      ib.Instant    `json:"last_ns"`
	Requests  int           `json:"requests"`  // without retransmissions
	Messages  [numVerbs]int `json:"-"`         // by Verb: messages whose last packet was seen
	Completed int           `json:"completed"` // messages that a response has completed
	// Payload is the number of bytes that requests have carried and READs have fetched, without retransmissions.
	Payload int64 `json:"payload"`

	Gaps               int          `json:"gaps"`    // number of times that requests are missing in the capture
	Missing            int          `json:"missing"` // number of missing requests
	Late               int          `json:"late"`
	Again              [numWhys]int `json:"-"` // by Why: retransmitted requests
	ResponseGaps       int          `json:"response_gaps"`
	MissingResponses   int          `json:"missing_responses"`
	DuplicateResponses int          `json:"duplicate_responses"`
	DuplicateAcks      int          `json:"duplicate_acks"`
	SequenceNAKs       int          `json:"sequence_naks"`
	RNRs               int          `json:"rnr_naks"`
	FatalNAKs          int          `json:"fatal_naks"`
	Lost               int          `json:"lost"`       // packets that were captured, but came late or not at all
	Congestion         int          `json:"congestion"` // CNPs for the flow's queue pair
}

// Retransmissions returns how many requests were retransmitted.
func (s *Stats) Retransmissions() int {
	n := 0
	for _, c := range s.Again {
		n += c
	}
	return n
}

// packet counts a packet of the flow.
func (s *Stats) packet(at ib.Instant, p *wire.Packet) {
	if s.Packets == 0 {
		s.First = at
	}
	s.Packets++
	s.Bytes += int64(len(p.Payload))
	s.Last = max(s.Last, at)
}

// fresh counts a new request.
func (s *Stats) fresh(p *wire.Packet, last bool, m *Message) {
	s.Requests++
	s.Payload += int64(len(p.Payload))
	if last {
		s.Messages[m.Verb]++
	}
}

// answered counts a new response.
func (s *Stats) answered(p *wire.Packet) { s.Payload += int64(len(p.Payload)) }

// datagram counts a datagram.
func (s *Stats) datagram(p *wire.Packet) {
	s.Requests++
	s.Messages[Send]++
	s.Payload += int64(len(p.Payload))
}
