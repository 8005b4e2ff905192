package device

import (
	"reflect"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/cma"
	"github.com/goroce/goroce/roce/internal/engine"
)

// StandsAside reports whether the first shard's goroutine leaves the turns to polling applications.
func (d *Device) StandsAside() bool { return d.ShardStandsAside(0) }

// ShardStandsAside is StandsAside for any shard.
func (d *Device) ShardStandsAside(i int) bool { return d.shard(i).StandsAside() }

// StepShard takes a turn of one shard of a device without loops.
func (d *Device) StepShard(i int, now ib.Instant) { d.shard(i).Step(now) }

// AddStats adds the counters of a shard to a sum.
func AddStats(sum, shard *engine.Stats) {
	add(reflect.ValueOf(sum).Elem(), reflect.ValueOf(shard).Elem())
}

// AppTurn is how many packets one application sends in its turn.
const AppTurn = engine.AppTurn

// Bounds of one turn of a shard.
const (
	TurnFrames     = engine.TurnFrames
	TurnFramesMost = engine.TurnFramesMost
	TurnDoorbells  = engine.TurnDoorbells
	TurnTimers     = engine.TurnTimers
	TurnDatagrams  = engine.TurnDatagrams
	TurnQPs        = engine.TurnQPs
	TurnBytes      = engine.TurnBytes
	TurnAnswers    = engine.TurnAnswers
	FlushMost      = qp.FlushMost
	MaxMcastQPs    = maxMcastQPs
	MoveMost       = qp.MoveMost
)

// LinkDown tells the device that a link has failed.
func (d *Device) LinkDown(err error) { owner{d}.LinkDown(err) }

// Workers returns how many workers for slow memory the device has.
func (d *Device) Workers() int { return len(d.workers.list()) }

// MaxHold is how many IDs change before a call releases the connection manager's lock for a moment.
const MaxHold = cma.MaxHold

// CMLongestHold returns the largest number of IDs that changed in one hold of the connection manager's lock.
func (d *Device) CMLongestHold() int { return d.cm.LongestHold() }

// CMHeld returns how many connections count for the owner of a channel.
func (d *Device) CMHeld(ch ib.CM) int { return d.cm.Held(ch.(*CM)) }

// LongestHold returns the largest number of objects that a verb has looked at in one hold of a shard's lock.
func (d *Device) LongestHold() (most int) {
	for i := range d.Shards() {
		most = max(most, d.shard(i).LongestHold())
	}
	return most
}
