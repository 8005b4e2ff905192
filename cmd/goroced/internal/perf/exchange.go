package perf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
)

// The messages of a meeting are perftest's, in this order.
//
//	version   16 bytes of text, NUL padded
//	options   between two goroce ends: see meet.Agree
//	cycle     the length of the piece that small messages go round, 4 bytes
//	line      the length of a cache line, 4 bytes
//	MTU       its code as a digit, and a NUL
//	keys      where a queue pair and its memory are; see address
//	report    what an end has measured of bandwidth, five messages of 8 bytes
//
// Numbers are big endian, fractions too. Addresses ("keys") are also swapped to wait for one another.
const (
	versionLen = 16
	version    = "6.06"
	// goroceMark follows the NUL of a goroce end's version, where the C tools ignore it; talksMark follows it if the
	// end tells its options next (meet.Agree).
	goroceMark = "goroce"
	talksMark  = "+"

	// oldestVersion is the oldest version that perftest 6.06 accepts.
	oldestVersion = 5.70
)

// encodeVersion encodes the version of an end that tells its options, or of one that does not, as the C tools.
func encodeVersion(talks bool) []byte {
	msg := make([]byte, versionLen)
	n := copy(msg, version)
	n += 1 + copy(msg[n+1:], goroceMark)
	if talks {
		copy(msg[n:], talksMark)
	}
	return msg
}

// decodeVersion returns the version, whether the peer is a goroce end, and whether it tells its options.
func decodeVersion(msg []byte) (text string, goroce, talks bool, err error) {
	head, tail, _ := bytes.Cut(msg, []byte{0})
	v, err := strconv.ParseFloat(string(head), 64)
	if err != nil || math.IsNaN(v) {
		return "", false, false, fmt.Errorf("%w: the peer sent %q, which is no version of perftest", ErrExchange, msg)
	}
	if v < oldestVersion {
		return "", false, false, fmt.Errorf("%w: the peer is perftest %s; it takes %.2f or a later one", ErrExchange,
			head, oldestVersion)
	}
	tail, goroce = bytes.CutPrefix(tail, []byte(goroceMark))
	return string(head), goroce, goroce && bytes.HasPrefix(tail, []byte(talksMark)), nil
}

func encodeInt(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }

// decodeInt decodes a number of the peer, which must be in lo to hi.
func decodeInt(msg []byte, what string, lo, hi int) (int, error) {
	v := int(int32(binary.BigEndian.Uint32(msg)))
	if v < lo || v > hi {
		return 0, fmt.Errorf("%w: the peer's %s is %d, not %d to %d", ErrExchange, what, v, lo, hi)
	}
	return v, nil
}

func encodeMTU(m ib.MTU) []byte { return []byte{'0' + byte(m.Code()), 0} }

func decodeMTU(msg []byte) (ib.MTU, error) {
	m := ib.MTUFromCode(int(msg[0]) - '0')
	if !m.Valid() {
		return 0, fmt.Errorf("%w: the peer's MTU is %q, not a digit of 1 to 5", ErrExchange, msg)
	}
	return m, nil
}

// address is the address of a queue pair and its memory. Over TCP it is the text
//
//	LID:OUT:QPN:PSN:RKEY:VADDR:GID:SRQN:
//
// of 4, 4, 6, 6, 8, 16, 16 x 2 and 8 hexadecimal digits, with colons between the bytes of the GID, and a NUL; over
// rdma_cm it is a C structure, see binary.go.
type address struct {
	lid         uint16 // 0 on Ethernet
	outstanding int    // READs and atomics that the end accepts at a time
	qpn         ib.QPN
	psn         ib.PSN // of the first packet that the queue pair sends
	rkey        ib.Key
	vaddr       uint64
	gid         ib.GID
	srqn        uint32 // with XRC
}

const (
	addressLen    = 108
	addressFields = 6 + len(ib.GID{}) + 1
)

// textAddresses encodes addresses for TCP.
type textAddresses struct{}

func (textAddresses) encode(a *address) []byte {
	msg := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x:", a.lid, a.outstanding, uint32(a.qpn), uint32(a.psn),
		uint32(a.rkey), a.vaddr)
	for _, b := range a.gid {
		msg = fmt.Appendf(msg, "%02x:", b)
	}
	return fmt.Appendf(msg, "%08x:\x00", a.srqn)
}

// decode decodes an address and checks every field.
func (textAddresses) decode(msg []byte) (a address, err error) {
	text := strings.TrimRight(string(msg), "\x00")
	bad := func(why string) (address, error) {
		return address{}, fmt.Errorf("%w: the peer sent %q as its address: %s", ErrExchange, text, why)
	}
	fields := strings.Split(strings.TrimSuffix(text, ":"), ":")
	if len(fields) != addressFields {
		return bad("not LID:OUT:QPN:PSN:RKEY:VADDR:GID:SRQN:")
	}
	var errs []error
	number := func(i, bits int) uint64 {
		v, err := strconv.ParseUint(fields[i], 16, bits)
		errs = append(errs, err)
		return v
	}
	a = address{lid: uint16(number(0, 16)), outstanding: int(number(1, 16)), qpn: ib.QPN(number(2, 24)),
		psn: ib.PSN(number(3, 24)), rkey: ib.Key(number(4, 32)), vaddr: number(5, 64),
		srqn: uint32(number(addressFields-1, 32))}
	if errors.Join(errs...) != nil {
		return bad("a number is out of range")
	}
	gid, err := hex.DecodeString(strings.Join(fields[6:addressFields-1], ""))
	if err != nil || len(gid) != len(a.gid) {
		return bad("the GID is not of 16 bytes")
	}
	a.gid = ib.GID(gid)
	if a.gid == (ib.GID{}) {
		return bad("there is no GID, without which there is no RoCE; start the peer with -x INDEX (`ibv_devinfo -v` " +
			"lists them)")
	}
	return a, nil
}

// figures are the bandwidth results of an end: size and number of messages, bytes and messages per second. Bandwidth is
// in the unit of the sender's options.
type figures [5]uint64

func (b *Row) figures() figures {
	return figures{uint64(b.Size), uint64(b.Iterations), math.Float64bits(b.Peak),
		math.Float64bits(b.Bandwidth.Average), math.Float64bits(b.MsgRate)}
}

func (f *figures) row() (Row, error) {
	r := Row{Size: int(f[0]), Iterations: int64(f[1]),
		Bandwidth: &Bandwidth{Peak: math.Float64frombits(f[2]), Average: math.Float64frombits(f[3]),
			MsgRate: math.Float64frombits(f[4])}}
	for _, v := range []float64{r.Peak, r.Bandwidth.Average, r.MsgRate} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Row{}, fmt.Errorf("%w: the peer's report holds %v", ErrExchange, v)
		}
	}
	if r.Size < 0 || r.Iterations < 0 {
		return Row{}, fmt.Errorf("%w: the peer reports %d messages of %d bytes", ErrExchange, r.Iterations, r.Size)
	}
	return r, nil
}
