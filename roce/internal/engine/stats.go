package engine

import (
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// Stats counts what a shard did since it was opened.
type Stats struct {
	qp.Stats
	RxICRCErrors  uint64 // frames whose ICRC was wrong
	DropMalformed uint64 // frames that do not decode
	DropNoQP      uint64 // packets for a QP number that is not in use
	DropService   uint64 // packets of another service than the QP's
	DropPKey      uint64 // packets of another partition
	DropAddress   uint64 // packets that are not from the QP's peer, or not to its address
	// DropSourcePort counts packets from another UDP source port than the pinned one.
	DropSourcePort uint64
	CrossedShards  uint64 // frames that arrived by the link of another shard than their QP's
	DropMailbox    uint64 // frames from other shards' links that found the mailbox of this shard full
	DropForgedMAD  uint64 // datagrams of other processes to QP 1, to which only the connection manager may send
	OffloadTrials  uint64 // trials of runs to a destination (package offload)
	Link           link.Stats
}

// Stats returns the current counters of the shard. The caller holds its lock
// (Engine.Each).
func (s *Shard) Stats() Stats {
	st := s.stats
	st.Link = s.link.Stats()
	s.mail.count(&st)
	return st
}
