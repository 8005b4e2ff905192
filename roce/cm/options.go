package cm

import "github.com/goroce/goroce/ib"

// Options adjust a Manager. Zero fields take the defaults.
type Options struct {
	GUID uint64 // of the device: peers take GUID and QP number for a connection

	// Seed is that of communication IDs, transaction IDs and starting PSNs. Peers and
	// strangers must not be able to guess it: take it from crypto/rand.
	Seed [32]byte

	Resend      ib.Instant // until a message is sent again for the first time (default 200 ms); doubles then
	ResendMax   ib.Instant // what it doubles up to (default 1.6 s)
	Retries     int        // how often a message is sent again (default 15)
	RequestLife ib.Instant // most that a request waits for its answer (default 75 s)

	MaxConns          int // IDs of all kinds (default 65536)
	MaxHalfOpen       int // requests received whose handshake is not over (default 4096)
	MaxHalfOpenSource int // the same from one GID (default 1024)
	MaxTimewait       int // connections in timewait (default 16384)
}

// Units of Instants.
const (
	millisecond ib.Instant = 1e6
	second      ib.Instant = 1e9
)

// Bounds that are not options.
const (
	// maxDelay is how long a peer's MRA keeps us from asking again. Linux says 68 s
	// there as a matter of course, and answers a copy with another MRA or, if its
	// answer got lost, with that.
	maxDelay    = 5 * second
	minTimewait = millisecond
	maxTimewait = 4 * second
	queueRoom   = 1024 // messages or events that wait to be taken out
)

func (o Options) withDefaults() Options {
	o.Resend = or(o.Resend, 200*millisecond)
	o.ResendMax = max(or(o.ResendMax, 1600*millisecond), o.Resend)
	o.Retries = or(o.Retries, 15)
	o.RequestLife = or(o.RequestLife, 75*second)
	o.MaxConns = or(o.MaxConns, 1<<16)
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
