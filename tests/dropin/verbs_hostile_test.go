//go:build linux

package dropin

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

var hostileSeed = flag.Uint64("verbs.seed", 0, "the only seed of TestVerbsHostile")

// liar stands between programs and a daemon, and changes what the daemon says.
type liar struct {
	daemon string
	rand   *rand.Rand
	rarely int    // one reply of so many is changed, besides the one in 12 that always is
	memory []byte // that came with the request: the program shares it with the daemon
	first  []byte // with twice, the handle of the first CQ
	twice  bool   // change nothing, but give all CQs the handle of the first
}

// serve takes the connections of programs until the listener is closed.
func (l *liar) serve(listener *net.UnixListener) {
	for {
		program, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		daemon, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.daemon, Net: "unixpacket"})
		if err != nil {
			_ = program.Close()
			return
		}
		l.relay(abi.NewConn(program), abi.NewConn(daemon))
		_, _ = program.Close(), daemon.Close()
	}
}

// relay carries messages until one end hangs up.
func (l *liar) relay(program, daemon *abi.Conn) {
	for {
		h, body, fds, err := program.Receive()
		if err != nil {
			abi.CloseAll(fds)
			return
		}
		body, fds = onMemfd(daemon, h.Op, body, fds)
		l.share(h.Op, fds) // before the daemon has it: later nobody can
		err = daemon.Send(h, body, fds...)
		abi.CloseAll(fds)
		if err == nil {
			h, body, fds, err = daemon.Receive()
		}
		if err == nil {
			h, body, fds = l.tell(h, append([]byte(nil), body...), fds)
		}
		_ = unix.Munmap(l.memory) // fails if there is none
		if err == nil {
			err = program.Send(h, body, fds...)
		}
		abi.CloseAll(fds)
		if err != nil {
			return
		}
	}
}

// onMemfd has memory of the program registered as a memfd, as the daemon would take this process's.
func onMemfd(daemon *abi.Conn, op abi.Op, body []byte, fds []int) ([]byte, []int) {
	r, err := abi.Get[abi.RegMR](body)
	if op != abi.OpRegMR || err != nil {
		return body, fds
	}
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil || unix.Ftruncate(fd, int64(r.Length)) != nil {
		return body, fds
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	err = daemon.Send(abi.Header{Op: abi.OpShareMemory}, nil, fd)
	_ = unix.Close(fd)
	if err != nil {
		return body, fds
	}
	_, answer, _, err := daemon.Receive()
	shared, wrong := abi.Get[abi.Object](answer)
	if err != nil || wrong != nil {
		return body, fds
	}
	abi.CloseAll(fds)
	r.Kind, r.File, r.Addr = abi.MemFD, shared.Handle, 0
	return abi.Put(nil, &r), nil
}

// sharing are the requests with which memory for rings or doorbells comes.
var sharing = []abi.Op{abi.OpShareDoorbells, abi.OpCreateCQ, abi.OpResizeCQ, abi.OpCreateSRQ, abi.OpModifySRQ,
	abi.OpCreateQP}

// share maps the memory that comes with a request.
func (l *liar) share(op abi.Op, fds []int) {
	l.memory = nil
	var st unix.Stat_t
	if !slices.Contains(sharing, op) || len(fds) != 1 || unix.Fstat(fds[0], &st) != nil {
		return
	}
	l.memory, _ = unix.Mmap(fds[0], 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// extremes are numbers that programs rarely expect.
var extremes = []byte{0, 1, 0x7F, 0x80, 0xFF}

// tell changes some replies.
func (l *liar) tell(h abi.Header, body []byte, fds []int) (abi.Header, []byte, []int) {
	if l.twice {
		l.repeat(h, body)
		return h, body, fds
	}
	switch n := l.rand.IntN(12); {
	case l.memory != nil && n < 4:
		l.scribble()
	case l.memory != nil && n == 4:
		clear(l.memory)
	case n == 5 || l.rand.IntN(l.rarely) == 0:
		return l.lie(h, body, fds)
	}
	return h, body, fds
}

// repeat gives a CQ the handle of the first one.
func (l *liar) repeat(h abi.Header, body []byte) {
	switch {
	case h.Op != abi.OpCreateCQ:
	case l.first == nil:
		l.first = slices.Clone(body[:4])
	default:
		copy(body, l.first)
	}
}

// lie changes a reply so that the library may notice.
func (l *liar) lie(h abi.Header, body []byte, fds []int) (abi.Header, []byte, []int) {
	switch l.rand.IntN(8) {
	case 0:
		h.Status = abi.Status(l.rand.IntN(30))
	case 1:
		h.Seq += uint32(l.rand.IntN(3))
	case 2:
		h.Op += abi.Op(l.rand.IntN(2))
	case 3:
		body = body[:l.rand.IntN(len(body)+1)]
	case 4:
		body = append(body, make([]byte, l.rand.IntN(200))...)
	case 5:
		if len(fds) > 0 {
			abi.CloseAll(fds[len(fds)-1:])
			fds = fds[:len(fds)-1]
		} else if fd, err := unix.MemfdCreate("more", unix.MFD_CLOEXEC); err == nil {
			fds = append(fds, fd)
		}
	default:
		for range 1 + l.rand.IntN(4) {
			if len(body) > 0 {
				body[l.rand.IntN(min(len(body), 512))] = extremes[l.rand.IntN(len(extremes))]
			}
		}
	}
	return h, body, fds
}

// scribble writes into shared memory: the header of a ring, its indices, slots.
func (l *liar) scribble() {
	for range 1 + l.rand.IntN(3) {
		// Words of a ring's header, its indices.
		word := []int{8, 12, 16, 20, 64, 128, 192, 4 * l.rand.IntN(1024)}[l.rand.IntN(8)]
		if word+4 <= len(l.memory) {
			binary.NativeEndian.PutUint32(l.memory[word:], words[l.rand.IntN(len(words))])
		}
	}
}

// words are numbers that a ring rarely has in its header.
var words = []uint32{0, 1, 2, 32, 64, 65, 128, 1 << 10, 1 << 16, 1 << 26, 1 << 31, 1<<31 - 64, 1<<32 - 64, 1<<32 - 1}

// TestVerbsHostile: whatever a daemon says, the library touches only memory that it has.
func TestVerbsHostile(t *testing.T) {
	besides(t)
	program := compileVerbs(t, "testdata/verbs_walk.c")
	h := newHost(t, nil)
	env := []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCE_QUIET=1"}
	if require.Full() { // objects that the daemon will not close stay
		env = append(sanitized(t, "address"), "GOROCE_QUIET=1", "ASAN_OPTIONS=detect_leaks=0")
	}
	seeds := []uint64{*hostileSeed}
	if seeds[0] == 0 {
		seeds = nil
		for i := range rounds(5, 100, 400) {
			seeds = append(seeds, uint64(i+1))
		}
	}
	told := 0
	for _, seed := range seeds {
		l := &liar{daemon: h.socket, rand: rand.New(rand.NewPCG(seed, 1)), rarely: 10 + int(seed%50)}
		out, err := withLiar(t, h, l, env, program)
		if strings.Contains(out, "Sanitizer") || err != nil {
			t.Errorf("%v\n%s\ngo test ./tests/dropin -run TestVerbsHostile -verbs.seed=%d", err, out, seed)
		}
		told += strings.Count(out, "request ")
	}
	if *hostileSeed == 0 && told < len(seeds)/2 {
		t.Errorf("the library noticed only %d lies in %d walks, want at least half", told, len(seeds))
	}
}

// TestHandleTwice: a daemon that gives a handle twice loses the program, and the object that had it first is not freed
// with the second one.
func TestHandleTwice(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_twice.c")
	h := newHost(t, nil)
	env := []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCE_QUIET=1"}
	if require.Full() {
		env = append(sanitized(t, "address"), "GOROCE_QUIET=1")
	}
	out, err := withLiar(t, h, &liar{daemon: h.socket, twice: true}, env, program)
	if err != nil || !strings.Contains(out, "twice") {
		t.Errorf("got %v, want success and a line that says so:\n%s", err, out)
	}
}

// withLiar runs a program with a liar between it and the daemon.
func withLiar(t *testing.T, h *host, l *liar, env []string, program string) (string, error) {
	t.Helper()
	socket := filepath.Join(userDir(t), "liar")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { l.serve(listener) })
	defer serving.Wait()
	defer listener.Close()
	between := *h
	between.socket = socket
	return between.with(t, append(env, "GOROCE_DEBUG=1"), program).wait(t)
}
