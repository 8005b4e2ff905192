package abi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// bodies are all types that messages contain as they lie in memory.
var bodies = []any{Header{}, Hello{}, HelloReply{}, Open{}, DeviceReply{}, OpenReply{}, Event{}, Completion{},
	Port{}, PortReply{},
	GIDEntry{}, PKeyReply{},
	ClockReply{}, Object{}, CreateCQ{}, ResizeCQ{}, Ring{}, RegMR{}, RegReply{}, ReregMR{}, AllocMW{}, AH{}, CreateAH{},
	ModifyAH{},
	CreateSRQ{},
	SRQAttr{}, CreateQP{}, QPAttr{}, Group{}, Counter{}, CloseReply{}, AllocXRCD{}, OpenQP{},
	CMSignal{}, CMAddr{}, CreateCMID{}, CMBind{}, CMListen{}, CMResolve{}, CMParam{}, CMConnect{}, CMReject{},
	CMValue{}, CMDelay{}, CMScope{},
	CMIDAttr{}, CMEvent{}, OpenCM{}}

// bytesOf returns the sum of the sizes of a type's fields; the difference from its size is padding.
func bytesOf(t *testing.T, typ reflect.Type) (n uintptr) {
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			n += bytesOf(t, typ.Field(i).Type)
		}
		return n
	case reflect.Array:
		return uintptr(typ.Len()) * bytesOf(t, typ.Elem())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Int32, reflect.Int64:
		return typ.Size()
	}
	t.Fatalf("%v is not a type that a message may contain", typ)
	return 0
}

// TestLayout checks that no body has pointers, or padding, which would leak bytes of the
// sender's memory and might differ with another compiler, and that each fits a message.
func TestLayout(t *testing.T) {
	for _, b := range bodies {
		typ := reflect.TypeOf(b)
		if n := bytesOf(t, typ); n != typ.Size() {
			t.Errorf("%v has %d bytes of padding, want none", typ, typ.Size()-n)
		}
		if int(typ.Size())+HeaderLen > MaxMessage {
			t.Errorf("%v takes %d bytes, want at most %d of a message", typ, int(typ.Size())+HeaderLen, MaxMessage)
		}
	}
	if n := MaxGIDs * int(reflect.TypeFor[GIDEntry]().Size()); n+HeaderLen > MaxMessage {
		t.Errorf("%d rows of GIDs take %d bytes, want at most %d", MaxGIDs, n, MaxMessage-HeaderLen)
	}
	if n := MaxCounters * int(reflect.TypeFor[Counter]().Size()); n+HeaderLen > MaxMessage {
		t.Errorf("%d counters take %d bytes, want at most %d", MaxCounters, n, MaxMessage-HeaderLen)
	}
}

// TestErrors checks that GetError returns the error that was passed to PutError.
func TestErrors(t *testing.T) {
	attr := &ib.AttrError{Op: "create CQ", Attr: "Entries", Value: 7, Allowed: "1 to 4", Err: ib.ErrLimit}
	long := fmt.Errorf("%s: %w", strings.Repeat("x", 5000), ib.ErrBusy)
	for _, c := range []struct {
		err    error
		target error
		text   string
	}{
		{attr, ib.ErrLimit, attr.Error()},
		{fmt.Errorf("close PD: %w by 2 QPs", ib.ErrBusy), ib.ErrBusy, "close PD: in use by 2 QPs"},
		{fmt.Errorf("hello: %w", ErrVersion), ErrVersion, "hello: version not supported"},
		{errors.New("something else"), nil, "something else"},
		{long, ib.ErrBusy, long.Error()[:maxText]},
	} {
		body, status := PutError(nil, c.err)
		got := GetError(body, status)
		if got.Error() != c.text || c.target != nil && !errors.Is(got, c.target) {
			t.Errorf("%v, want %v of %v", got, c.err, c.target)
		}
		var back *ib.AttrError
		if errors.As(c.err, new(*ib.AttrError)) && (!errors.As(got, &back) || back.Attr != "Entries") {
			t.Errorf("%v became %#v, want an AttrError of Entries", c.err, got)
		}
		for n := range body { // a truncated body still gives an error
			if GetError(body[:n], status) == nil {
				t.Fatalf("%v, cut to %d bytes, is none, want an error", c.err, n)
			}
		}
	}
}

// TestAttributes checks that attributes are unchanged after conversion to messages and back.
func TestAttributes(t *testing.T) {
	attr := ib.QPAttr{State: ib.StateRTS, CurState: ib.StateSQD, Port: 1, PKeyIndex: 2, Access: ib.RemoteRead, QKey: 3,
		AH: ib.AHAttr{DGID: ib.GID{1, 2, 15: 3}, SGIDIndex: 4, Port: 1, TrafficClass: 5, HopLimit: 6,
			FlowLabel: 7},
		PathMTU: ib.MTU2048, DestQPN: 8, RQPSN: 9, SQPSN: 10, MaxRdAtomic: 11, MaxDestRdAtomic: 12, MinRNRTimer: 13,
		Timeout:  14,
		RetryCnt: 5, RNRRetry: 6, RateLimit: 17, SQDNotify: true, Draining: true,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 2, MaxSendSGE: 3, MaxRecvSGE: 4, MaxInline: 5}}
	crossed := QPAttrOf(1, &attr, ib.AttrState)
	if diff := cmp.Diff(attr, crossed.Attr()); diff != "" {
		t.Error(diff)
	}
	var dev ib.DeviceAttr
	for v, i := reflect.ValueOf(&dev).Elem(), 0; i < v.NumField(); i++ {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprint("text ", i))
		case reflect.Int:
			f.SetInt(int64(100 + i))
		default:
			f.SetUint(uint64(i))
		}
	}
	open := DeviceOf(&dev)
	if diff := cmp.Diff(dev, open.Attr()); diff != "" {
		t.Error(diff)
	}
}

// pair returns the two ends of a control socket.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *Conn {
		f := os.NewFile(uintptr(fd), "end")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return NewConn(c.(*net.UnixConn))
	}
	return end(fds[0]), end(fds[1])
}

// TestConn sends a message with a descriptor, and checks that malformed messages give errors.
func TestConn(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send(Header{Op: OpRegMR, Seq: 7}, []byte("body"), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	h, body, fds, err := b.Receive()
	if err != nil || h != (Header{Op: OpRegMR, Seq: 7}) || string(body) != "body" || len(fds) != 1 {
		t.Fatalf("received %+v, %q, %d descriptors: %v; want %+v, body and 1", h, body, len(fds), err,
			Header{Op: OpRegMR, Seq: 7})
	}
	_, _ = unix.Write(fds[0], []byte("x"))
	CloseAll(fds)
	got := make([]byte, 2)
	if n, err := r.Read(got); n != 1 || err != nil {
		t.Errorf("through the descriptor: %q, %v; want 1 byte", got[:n], err)
	}
	for _, bad := range [][]byte{{1}, slices.Repeat([]byte{1}, MaxMessage+1)} {
		if _, err := a.UnixConn.Write(bad); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := b.Receive(); err == nil {
			t.Errorf("%d bytes were a message, want an error", len(bad))
		}
	}
	a.Close()
	if _, _, _, err := b.Receive(); err == nil {
		t.Error("a closed socket gave a message")
	}
}

// FuzzError checks that no error body from a daemon can crash its client.
func FuzzError(f *testing.F) {
	body, status := PutError(nil, &ib.AttrError{Op: "o", Attr: "a", Value: 1, Allowed: "x", Err: ib.ErrInvalid})
	f.Add(body, uint16(status))
	f.Fuzz(func(t *testing.T, body []byte, status uint16) {
		_ = GetError(body, Status(status)).Error()
	})
}

// TestNoDescriptors checks that a message for whose descriptors the process has no room gives
// ErrDescriptors, and that the next message is received.
func TestNoDescriptors(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Conn
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ends[i] = NewConn(c.(*net.UnixConn))
	}
	for seq := range uint32(2) {
		if err := ends[0].Send(Header{Op: OpRegMR, Seq: seq}, nil, int(os.Stdin.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	free, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = uint64(free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	h, _, fds, err := ends[1].Receive()
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, ErrDescriptors) || !errors.Is(err, ib.ErrLimit) || len(fds) != 0 || h != (Header{Op: OpRegMR}) {
		t.Errorf("without room: %+v, %d descriptors, %v; want %+v, none, %v", h, len(fds), err, Header{Op: OpRegMR},
			ErrDescriptors)
	}
	h, _, fds, err = ends[1].Receive()
	if err != nil || len(fds) != 1 || h.Seq != 1 {
		t.Errorf("with room: %+v, %d descriptors, %v; want number 1 with 1", h, len(fds), err)
	}
	CloseAll(fds)
}

// TestKinds checks that each kind of objects has a name.
func TestKinds(t *testing.T) {
	for k, want := range map[Kind]string{0: "kind 0", KindMembership: "CM membership", KindQP: "QP", KindPD: "PD",
		KindPD + 1: "kind 14"} {
		if got := k.String(); got != want {
			t.Errorf("kind %d is %q, want %q", uint32(k), got, want)
		}
	}
}
