package device_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// Processors that write to one cache line wait for each other. Whether two shards do so shows no benchmark on a machine
// with two of them. But lackey, a tool of valgrind, lists each load and store of a program: TestSharedLines runs this
// test's program under it, which sends the same messages on two shards, one after the other.

// lineMarks are stored to before and behind the part of each shard. Each is in a cache line of its own.
var lineMarks [4]struct {
	at atomic.Uint64
	_  [120]byte
}

// linesEnv makes this test the program that is looked at.
const linesEnv = "GOROCE_TEST_LINES"

// TestSharedLines: two shards of one device write to no cache line in common while they send to two shards of another
// one, and receive from them. Each has a congestion window of its own.
func TestSharedLines(t *testing.T) {
	if os.Getenv(linesEnv) != "" {
		sendOnTwoShards(t)
		return
	}
	require.FullRun(t, "it takes half a minute")
	require.NoRace(t, "valgrind cannot run a program with the race detector")
	valgrind := require.Command(t, "valgrind")
	list, out, err := os.Pipe()
	must(t, err)
	defer list.Close()
	cmd := exec.Command(valgrind, "-q", "--tool=lackey", "--trace-mem=yes", "--log-fd=3", os.Args[0],
		"-test.run=^TestSharedLines$")
	var said bytes.Buffer
	cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = append(os.Environ(), linesEnv+"=1"), []*os.File{out}, &said, &said
	must(t, cmd.Start())
	must(t, out.Close())
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	stored, err := storedLines(list)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	first, second := stored[0], stored[1]
	t.Logf("the first shard writes to %d cache lines, the second to %d", len(first), len(second))
	if len(first) < 100 || len(second) < 100 {
		t.Errorf("got %d and %d cache lines, want at least 100 each: the parts were not seen", len(first), len(second))
	}
	for _, line := range slices.Sorted(maps.Keys(first)) {
		a, b := ours(first[line]), ours(second[line])
		if len(a) > 0 && len(b) > 0 {
			t.Errorf("got cache line %#x written by both shards, want none: by the first in %s; by the second in %s",
				line, strings.Join(a, ", "), strings.Join(b, ", "))
		}
	}
}

// ours returns the functions at these addresses, without those of the runtime and of the test.
func ours(at map[uint64]bool) (names []string) {
	for pc := range at {
		name := runtime.FuncForPC(uintptr(pc)).Name()
		if name, ok := strings.CutPrefix(name, "github.com/goroce/goroce/"); ok && !strings.HasPrefix(name,
			"roce/internal/device_test") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// storedLines reads lackey's list: for each part the cache lines that were stored to, with the addresses of the
// instructions.
func storedLines(list io.Reader) (parts [2]map[uint64]map[uint64]bool, err error) {
	marks := map[uint64]int{}
	for i := range lineMarks {
		marks[uint64(uintptr(unsafe.Pointer(&lineMarks[i].at)))] = i
	}
	for i := range parts {
		parts[i] = map[uint64]map[uint64]bool{}
	}
	in, part, pc := bufio.NewReaderSize(list, 1<<20), -1, uint64(0)
	for {
		// "I  04001000,3" is an instruction; behind it are what it loads (L), stores (S) or both (M): " S 1ffeff,8".
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil || len(text) < 4 || part < 0 && text[0] == 'I' {
			continue
		}
		kind := text[1]
		if text[0] == 'I' {
			kind = 'I'
		} else if kind != 'S' && kind != 'M' {
			continue
		}
		digits, _, _ := bytes.Cut(text[3:], []byte(","))
		addr, err := strconv.ParseUint(string(digits), 16, 64)
		switch mark, ok := marks[addr]; {
		case err != nil:
			return parts, fmt.Errorf("line %q of lackey: %w", text, err)
		case kind == 'I':
			pc = addr
		case ok && mark%2 == 0:
			part = mark / 2
		case ok:
			part = -1
		case part >= 0:
			line := addr &^ 63
			if parts[part][line] == nil {
				parts[part][line] = map[uint64]bool{}
			}
			parts[part][line][pc] = true
		}
	}
}

const (
	lineSize   = 4096
	lineRounds = 8 // of a WRITE, a SEND and a READ
	lineWarmup = 4 // before that, so that what grows has grown
)

// lineEnd is a QP of a shard, with what it needs.
type lineEnd struct {
	dev   *device.Device
	shard int
	cq    ib.CQ
	qp    ib.QP
	mr    ib.MR
	wcs   [16]ib.WC
}

// sendOnTwoShards sends messages from the shards of one device to two others, from each on a goroutine of its own, so
// that they share no stack.
func sendOnTwoShards(t *testing.T) {
	debug.SetGCPercent(-1)
	near, far := openLineDevice(t), openLineDevice(t)
	turns, done := make([]chan int, 2), make(chan error)
	for i := range turns {
		a, b := newLineEnd(t, near, i), newLineEnd(t, far, i)
		a.to(t, b)
		b.to(t, a)
		turns[i] = make(chan int)
		go func() {
			for n := range turns[i] {
				var failed error
				for range n {
					failed = errors.Join(failed, a.exchange(b))
				}
				done <- failed
			}
		}()
	}
	for _, turn := range turns {
		turn <- lineWarmup
		must(t, <-done)
	}
	for i, turn := range turns {
		lineMarks[2*i].at.Store(1)
		turn <- lineRounds
		err := <-done
		lineMarks[2*i+1].at.Store(1)
		must(t, err)
	}
}

// openLineDevice opens a device of two shards without loops.
func openLineDevice(t *testing.T) *device.Device {
	links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{}, 2)
	must(t, err)
	for i, l := range links {
		links[i] = wrap.Seal(wrap.Loopback(l))
	}
	dev, err := device.OpenShards(links, device.Options{Manual: true})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	return dev
}

// newLineEnd makes a QP on a shard.
func newLineEnd(t *testing.T, dev *device.Device, shard int) *lineEnd {
	e := &lineEnd{dev: dev, shard: shard}
	pd, err := dev.AllocPD()
	must(t, err)
	for e.qp == nil || e.qp.(*device.QP).Shard() != shard { // CQs are given to the shards in turn
		e.cq, err = dev.CreateCQ(ib.CQInit{Entries: 64})
		must(t, err)
		e.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq,
			Cap: ib.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(t, err)
	}
	e.mr, err = pd.RegMR(ib.MRInit{Buf: make([]byte, 2*lineSize),
		Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead})
	must(t, err)
	return e
}

func (e *lineEnd) to(t *testing.T, peer *lineEnd) {
	gids, err := peer.dev.GIDs(1)
	must(t, err)
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: gids[0].GID}, PathMTU: ib.MTU1024,
		DestQPN: peer.qp.Num(), MaxDestRdAtomic: 4, MinRNRTimer: 12, MaxRdAtomic: 4, Timeout: 18, RetryCnt: 7,
		RNRRetry: 7}
	must(t, ib.ModifyTo(e.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

// exchange sends a message of each kind to b.
func (a *lineEnd) exchange(b *lineEnd) error {
	if _, err := b.qp.PostRecv([]ib.RecvWR{{SGL: []ib.SGE{b.mr.SGE(lineSize, lineSize)}}}); err != nil {
		return err
	}
	sgl := []ib.SGE{a.mr.SGE(0, lineSize)}
	wrs := []ib.SendWR{
		{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: sgl, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()},
		{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: sgl},
		{Opcode: ib.WRRead, Flags: ib.SendSignaled, SGL: sgl, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()},
	}
	if _, err := a.qp.PostSend(wrs); err != nil {
		return err
	}
	for left := len(wrs) + 1; left > 0; {
		for _, e := range [...]*lineEnd{a, b} {
			e.dev.StepShard(e.shard, ib.Instant(time.Since(lineOrigin)))
			n, err := e.cq.Poll(e.wcs[:])
			for i := range e.wcs[:n] {
				err = errors.Join(err, e.wcs[i].Err())
			}
			if err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// lineOrigin is time 0 of the devices.
var lineOrigin = time.Now()
