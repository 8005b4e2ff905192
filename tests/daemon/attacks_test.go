package daemon

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// report is the result of an attacker.
type report struct {
	Problems []string       // unexpected observations
	Counts   map[string]int // how often it did or saw what
}

// attacker is a child that attacks the daemon.
type attacker struct {
	job
	rng *rand.Rand
	report
}

func (a *attacker) count(what string) { a.Counts[what]++ }

// attacks are the attacks by name. Each runs the given number of rounds, or until it is killed if that is 0.
var attacks = map[string]func(a *attacker, rounds int){
	"every":       (*attacker).every,
	"requests":    (*attacker).requests,
	"descriptors": (*attacker).descriptors,
	"rings":       (*attacker).rings,
	"torn":        (*attacker).torn,
	"storm":       (*attacker).storm,
	"limits":      (*attacker).limits,
	"connections": (*attacker).connections,
	"silence":     (*attacker).silence,
	"pages":       (*attacker).pages,
}

// hostile is the role of a child that runs an attack.
func hostile(c *parent) {
	if c.Nobody {
		must(syscall.Setgid(nobody))
		must(syscall.Setuid(nobody))
	}
	a := &attacker{job: c.job, rng: rand.New(rand.NewPCG(c.Seed, 3)), report: report{Counts: map[string]int{}}}
	if c.Rounds == 0 {
		c.tell("begins")
		c.Rounds = 1 << 62
	}
	for range mostRepeats {
		attacks[c.Attack](a, c.Rounds)
		if a.saw(c.Want) {
			break
		}
	}
	c.tell(a.report)
}

// mostRepeats is how often the rounds of an attack are run at most until all that it wants has happened. What an attack
// tries is drawn at random, and some effects are rare.
const mostRepeats = 20

// saw reports whether each of these keys of Counts has happened.
func (a *attacker) saw(want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return a.Counts[w] == 0 })
}

// bodySizes are the correct lengths of requests' bodies.
var bodySizes = map[abi.Op]uintptr{
	abi.OpHello: unsafe.Sizeof(abi.Hello{}), abi.OpOpen: unsafe.Sizeof(abi.Open{}),
	abi.OpQueryPort: unsafe.Sizeof(abi.Port{}),
	abi.OpGIDs:      unsafe.Sizeof(abi.Port{}), abi.OpPKey: unsafe.Sizeof(abi.Port{}),
	abi.OpCreateCQ: unsafe.Sizeof(abi.CreateCQ{}),
	abi.OpResizeCQ: unsafe.Sizeof(abi.ResizeCQ{}), abi.OpRegMR: unsafe.Sizeof(abi.RegMR{}),
	abi.OpReregMR: unsafe.Sizeof(abi.ReregMR{}),
	abi.OpAllocMW: unsafe.Sizeof(abi.AllocMW{}), abi.OpCreateAH: unsafe.Sizeof(abi.CreateAH{}),
	abi.OpModifyAH:  unsafe.Sizeof(abi.ModifyAH{}),
	abi.OpCreateSRQ: unsafe.Sizeof(abi.CreateSRQ{}), abi.OpModifySRQ: unsafe.Sizeof(abi.SRQAttr{}),
	abi.OpQuerySRQ: unsafe.Sizeof(abi.SRQAttr{}),
	abi.OpCreateQP: unsafe.Sizeof(abi.CreateQP{}), abi.OpModifyQP: unsafe.Sizeof(abi.QPAttr{}),
	abi.OpQueryQP: unsafe.Sizeof(abi.Object{}),
	abi.OpAttach:  unsafe.Sizeof(abi.Group{}), abi.OpDetach: unsafe.Sizeof(abi.Group{}),
	abi.OpClose: unsafe.Sizeof(abi.Close{}), abi.OpAllocXRCD: unsafe.Sizeof(abi.AllocXRCD{}),
	abi.OpQueryDevice: unsafe.Sizeof(abi.Open{}), abi.OpCounters: unsafe.Sizeof(abi.Port{}),
	abi.OpOpenQP: unsafe.Sizeof(abi.OpenQP{}),

	abi.OpCreateCMID: unsafe.Sizeof(abi.CreateCMID{}), abi.OpCMEvent: unsafe.Sizeof(abi.Object{}),
	abi.OpCMBind: unsafe.Sizeof(abi.CMBind{}), abi.OpCMListen: unsafe.Sizeof(abi.CMListen{}),
	abi.OpCMResolveAddr: unsafe.Sizeof(abi.CMResolve{}), abi.OpCMResolveRoute: unsafe.Sizeof(abi.CMResolve{}),
	abi.OpCMConnect: unsafe.Sizeof(abi.CMConnect{}), abi.OpCMAccept: unsafe.Sizeof(abi.CMConnect{}),
	abi.OpCMEstablish: unsafe.Sizeof(abi.Object{}), abi.OpCMReject: unsafe.Sizeof(abi.CMReject{}),
	abi.OpCMDelay: unsafe.Sizeof(abi.CMDelay{}), abi.OpCMDisconnect: unsafe.Sizeof(abi.Object{}),
	abi.OpCMNotify: unsafe.Sizeof(abi.CMValue{}),
	abi.OpCMJoin:   unsafe.Sizeof(abi.CMBind{}), abi.OpCMLeave: unsafe.Sizeof(abi.CMBind{}),
	abi.OpCMInitQPAttr: unsafe.Sizeof(abi.CMValue{}), abi.OpCMSetOption: unsafe.Sizeof(abi.CMValue{}),
	abi.OpCMQuery: unsafe.Sizeof(abi.Object{}), abi.OpCMMigrate: unsafe.Sizeof(abi.CMValue{}),
}

// takeMemory are the requests with which a memfd comes.
var takeMemory = []abi.Op{abi.OpShareDoorbells, abi.OpCreateCQ, abi.OpResizeCQ, abi.OpCreateSRQ, abi.OpModifySRQ,
	abi.OpCreateQP, abi.OpShareMemory}

// requests sends requests at random, on a connection that has objects of every kind.
func (a *attacker) requests(rounds int) {
	var q *queues
	for range rounds {
		if q == nil {
			q = newQueues(a.Socket)
		}
		if !a.try(q, abi.Op(a.rng.IntN(int(abi.OpShareMemory)+2))) || a.rng.IntN(500) == 0 {
			q.close()
			q = nil
		}
	}
	if q != nil {
		q.close()
	}
}

// try sends a request with arguments at random. It returns false if the daemon has ended the connection.
func (a *attacker) try(q *queues, op abi.Op) bool {
	size := int(bodySizes[op])
	if a.rng.IntN(8) == 0 {
		size = a.rng.IntN(200)
	}
	var give []int
	memory := newMemfd(0, hostileMemory, unix.F_SEAL_SHRINK)
	if a.rng.IntN(3) == 0 || slices.Contains(takeMemory, op) {
		give = []int{memory, q.wakes[0]}[:1+a.rng.IntN(2)]
	}
	status, _, fds, err := q.call(op, a.body(size), give...)
	abi.CloseAll(append(fds, memory))
	switch {
	case err != nil:
		a.count("hung up")
	case status == abi.OK:
		a.count("done")
	default:
		a.count("refused")
	}
	return err == nil
}

// body returns random bytes, many of which are plausible: handles, kinds, masks, small sizes.
func (a *attacker) body(size int) []byte {
	b := make([]byte, size)
	for i := 0; i < size; i += 4 {
		var v uint32
		switch a.rng.IntN(6) {
		case 0, 1:
			v = uint32(a.rng.IntN(16))
		case 2:
			v = uint32(a.rng.IntN(5000))
		case 3:
			v = 1 << a.rng.IntN(32)
		case 4:
			v = a.rng.Uint32()
		}
		var word [4]byte
		binary.NativeEndian.PutUint32(word[:], v)
		copy(b[i:], word[:])
	}
	return b
}

// Offsets of the words of rings (package ring).
const (
	ringProducer = 64
	ringConsumer = 128
	ringWake     = 192
	ringSlots    = 256
)

func word(b []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }

// any returns one of the rings, and the index of its QP.
func (a *attacker) any(q *queues) (buf []byte, of int) {
	of = a.rng.IntN(len(q.qps))
	switch a.rng.IntN(6) {
	case 0:
		return q.ready, of
	case 1:
		return q.shared, of
	case 2:
		if len(q.recv[of]) > 0 {
			return q.recv[of], of
		}
	}
	return q.send[of], of
}

// scribble writes garbage somewhere into a ring.
func (a *attacker) scribble(buf []byte) {
	off := []int{ringProducer, ringConsumer, ringWake, a.rng.IntN(len(buf)/4) * 4}[a.rng.IntN(4)]
	v := a.rng.Uint32()
	if a.rng.IntN(2) == 0 {
		v = atomic.LoadUint32(word(buf, off)) + uint32(a.rng.IntN(7)) - 3
	}
	atomic.StoreUint32(word(buf, off), v)
}

// plausible writes an almost valid slot, and publishes it.
func (a *attacker) plausible(q *queues, buf []byte) {
	entries, size := *word(buf, 8), *word(buf, 12)
	at := atomic.LoadUint32(word(buf, ringProducer))
	off := ringSlots + int(at%max(entries, 1))*int(size)
	if size == 0 || off+int(size) > len(buf) {
		return // an earlier attack has overwritten the header
	}
	slot := buf[off:][:size]
	copy(slot, a.body(int(size)))
	slot[8], slot[9] = byte(a.rng.IntN(17)), byte(a.rng.IntN(16))
	binary.NativeEndian.PutUint16(slot[10:], uint16(a.rng.IntN(5)))
	if a.rng.IntN(4) > 0 { // valid addresses and keys
		binary.NativeEndian.PutUint64(slot[24:], hostileBase+uint64(a.rng.IntN(hostileMemory)))
		binary.NativeEndian.PutUint32(slot[32:], uint32(q.key))
		for i := 64; i+16 <= len(slot); i += 16 {
			binary.NativeEndian.PutUint64(slot[i:], hostileBase+uint64(a.rng.IntN(hostileMemory)))
			binary.NativeEndian.PutUint32(slot[i+8:], uint32(a.rng.IntN(hostileMemory/2)))
			binary.NativeEndian.PutUint32(slot[i+12:], uint32(q.key))
		}
	}
	atomic.StoreUint32(word(buf, ringProducer), at+1+uint32(a.rng.IntN(8)/7*a.rng.IntN(40)))
}

// ring rings the doorbell of a QP, and sometimes another or none.
func (a *attacker) ring(q *queues, of int) {
	doorbell := q.qps[of].Doorbell
	if a.rng.IntN(10) == 0 {
		doorbell = uint32(a.rng.IntN(4096))
	}
	q.doorbells[0].Ring(doorbell)
	var value [8]byte
	binary.NativeEndian.PutUint64(value[:], []uint64{1, 1, 1, 0, 1<<64 - 2, 1<<64 - 1}[a.rng.IntN(6)])
	_, _ = unix.Write(q.wakes[0], value[:]) // it is non-blocking, and may be full
	if a.rng.IntN(50) == 0 {
		_, _ = unix.Read(q.wakes[0], value[:])
	}
}

// rings writes garbage into rings and doorbells.
func (a *attacker) rings(rounds int) {
	q := newQueues(a.Socket)
	for range rounds {
		buf, of := a.any(q)
		if a.rng.IntN(3) == 0 {
			a.scribble(buf)
		} else {
			a.plausible(q, buf)
		}
		if a.rng.IntN(200) == 0 {
			a.scribble(q.maps[0][:256]) // the doorbells
		}
		a.ring(q, of)
		switch n := a.rng.IntN(300); {
		case n == 0:
			q.close()
			q = newQueues(a.Socket)
			a.count("connections")
		case n < 30:
			a.again(q, of)
		}
	}
	q.close()
}

// again takes a QP that has failed back to RTS.
func (a *attacker) again(q *queues, of int) {
	attr, _ := ask[abi.QPAttr](q.raw, abi.OpQueryQP, abi.Object{Handle: q.qps[of].Handle})
	if ib.QPState(attr.State) != ib.StateRTS {
		a.count("QPs failed")
		q.bringUp(of)
	}
	for _, r := range [][]byte{q.send[of], q.recv[of]} { // RESET empties the rings; continue at their indices
		if len(r) > 0 {
			atomic.StoreUint32(word(r, ringProducer), atomic.LoadUint32(word(r, ringConsumer)))
		}
	}
}

// torn posts valid requests while another thread overwrites them.
func (a *attacker) torn(rounds int) {
	for rounds > 0 {
		q := newQueues(a.Socket)
		var stop atomic.Bool
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			rng := rand.New(rand.NewPCG(a.Seed, 4))
			for b := q.send[0][ringSlots:]; !stop.Load(); {
				for range 1000 {
					atomic.StoreUint32(word(b, rng.IntN(len(b)/4)*4), rng.Uint32()>>rng.IntN(32))
				}
				<-time.After(time.Millisecond) // do not occupy the processor all the time
			}
		}()
		sq, err := ring.OpenSend(q.send[0])
		must(err)
		for range min(rounds, 2000) {
			rounds--
			wr := ib.SendWR{ID: 1, Opcode: ib.WRWrite, RemoteAddr: hostileBase, RKey: ib.Key(q.key),
				SGL: []ib.SGE{{Addr: hostileBase, Length: 4096, LKey: ib.Key(q.key)},
					{Addr: hostileBase + 8192, Length: 4096, LKey: ib.Key(q.key)}}}
			if sq.Push(&wr) != nil {
				a.count("full")
			}
			if sq.Publish() && q.doorbells[0].Ring(q.qps[0].Doorbell) {
				must(q.wake())
			}
			if attr, _ := ask[abi.QPAttr](q.raw, abi.OpQueryQP,
				abi.Object{Handle: q.qps[0].Handle}); ib.QPState(attr.State) != ib.StateRTS {
				a.count("QPs failed")
				break
			}
		}
		stop.Store(true)
		<-stopped
		q.close()
	}
}

// storm rings all doorbells all the time, and keeps all queues full of small requests.
func (a *attacker) storm(rounds int) {
	q := newQueues(a.Socket)
	defer q.close()
	for i := range rounds {
		for of := range q.qps {
			a.plausible(q, q.send[of])
		}
		for j := 128; j < len(q.maps[0]); j += 4 { // behind the header and the wake word
			atomic.StoreUint32(word(q.maps[0], j), ^uint32(0))
		}
		a.ring(q, 0)
		if i%16 == 0 {
			a.again(q, i/16%len(q.qps))
		}
	}
}
