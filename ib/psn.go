package ib

// PSN is a packet sequence number: 24 bits, counting modulo 2^24 (IBTA 9.7.2).
// MSNs (message sequence numbers) share the type and the arithmetic.
type PSN uint32

// PSNMask selects the bits of a PSN.
const PSNMask PSN = 1<<24 - 1

// Add returns the PSN n packets later; n may be negative.
func (p PSN) Add(n int) PSN { return (p + PSN(uint32(n))) & PSNMask }

// Sub returns the distance from q to p in packets; it is negative if p is before q. The result is in [-2^23, 2^23): two
// PSNs are compared within half of the number space (IBTA 9.7.2).
func (p PSN) Sub(q PSN) int { return int(int32((p-q)<<8) >> 8) }

// Before reports whether p precedes q in the circular order.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }

// After reports whether p follows q in the circular order.
func (p PSN) After(q PSN) bool { return p.Sub(q) > 0 }

// QPN is a queue pair number: 24 bits. 0 and 1 are the QPs of the subnet management and the general services interface;
// 0xFFFFFF is the destination of multicast datagrams.
type QPN uint32

// Well-known queue pair numbers (IBTA 3.9.3, 10.5).
const (
	QPNSMI       QPN = 0
	QPNGSI       QPN = 1
	QPNMulticast QPN = 1<<24 - 1
	QPNMask      QPN = 1<<24 - 1
)

// Key is an L_Key or an R_Key. The upper 24 bits are an index into the device's key table. The low 8 bits change each
// time the index is used again, so that an old key does not open new memory.
type Key uint32

// DefaultPKey is the only partition key that RoCEv2 devices need to support: that of the default partition, with full
// membership.
const DefaultPKey uint16 = 0xFFFF

// Instant is a point in time, in nanoseconds since an origin that the owner of the clock has chosen. The protocol core
// does not read a clock: its callers pass the time.
type Instant int64
