package cm

import "github.com/goroce/goroce/ib"

// Options adjust a Manager. Zero fields take the defaults.
type Options struct {
	GUID uint64 // of the device; peers identify its QPs by GUID and QP number

	// Seed is the seed of communication IDs, transaction IDs and first PSNs. Nobody else must be able to guess it: take
	// it from crypto/rand.
	Seed [32]byte

	// PathMTU returns the largest path MTU that a connection over a path may have; nil allows all. A REQ for a larger
	// one is rejected.
	PathMTU func(Path) ib.MTU

	// Wall returns the time of day in ns since 1970, for answers to wire.EchoAsk; nil if there are to be none.
	Wall func() int64

	Resend      ib.Instant // first interval of retransmission (default 200 ms); it doubles each time
	ResendMax   ib.Instant // largest interval (default 1.6 s)
	Retries     int        // retransmissions of a message (default 15)
	RequestLife ib.Instant // longest time that a request waits for the consumer's answer (default 75 s)

	MaxConns          int // IDs of all kinds (default MaxConns)
	MaxHalfOpen       int // requests received whose handshake is not complete (default 4096)
	MaxHalfOpenSource int // those from one GID (default 1024)
	MaxTimewait       int // connections in timewait (default 16384)
}

// Units of Instants.
const (
	millisecond ib.Instant = 1e6
	second      ib.Instant = 1e9
)

// MaxConns is how many connections, resolutions and requests a port has by default.
const MaxConns = 1 << 16

// MaxStep bounds the work of one call: so many connections at most change their state in it. The caller holds a lock
// meanwhile, for which others wait.
const MaxStep = 64

// Limits that are not options.
const (
	// maxDelay limits how long a MRA of the peer delays our next retransmission. Linux always asks for 68 s; it answers
	// a repeated message with another MRA or, if its answer was lost, with the answer.
	maxDelay    = 5 * second
	minTimewait = millisecond
	maxTimewait = 4 * second
	queueRoom   = 1024 // messages or events that wait for NextMessage or NextEvent
)

func (o Options) withDefaults() Options {
	o.Resend = or(o.Resend, 200*millisecond)
	o.ResendMax = max(or(o.ResendMax, 1600*millisecond), o.Resend)
	o.Retries = or(o.Retries, 15)
	o.RequestLife = or(o.RequestLife, 75*second)
	o.MaxConns = or(o.MaxConns, MaxConns)
	o.MaxHalfOpen = or(o.MaxHalfOpen, 4096)
	o.MaxHalfOpenSource = or(o.MaxHalfOpenSource, 1024)
	o.MaxTimewait = or(o.MaxTimewait, 1<<14)
	return o
}

func or[T int | ib.Instant](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}
