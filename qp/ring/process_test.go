package ring

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// This file tests both handshakes with real sleeping: an application posts and polls, a
// device pops and completes, and each sleeps on a pipe when it finds no entries. If a
// wake-up is lost, the sleep ends with an error: after trialTimeout if both sleep, by the
// end of the pipe if the device has done all.

const (
	messages     = 20000
	trialSends   = 8
	trialCQ      = 16
	trialInline  = 32
	trialTimeout = 30 * time.Second
	childEnv     = "GOROCE_RING_TEST_CHILD"
)

// peer holds the pipes by which one side wakes the other and sleeps itself.
type peer struct{ doorbell, sleep *os.File }

func (p peer) wake() error { _, err := p.doorbell.Write([]byte{1}); return err }

func (p peer) wait() error {
	err := p.sleep.SetReadDeadline(time.Now().Add(trialTimeout))
	if err != nil && !errors.Is(err, os.ErrNoDeadline) { // the other process has none
		return err
	}
	_, err = p.sleep.Read(make([]byte, 64))
	return err
}

// window returns how many messages may be incomplete: for the first half one, so that
// each needs a handshake in both directions, then as many as fit into the CQ.
func window(posted uint64) uint64 {
	if posted < messages/2 {
		return 1
	}
	return trialCQ
}

// application posts all messages and polls their completions, which must come in
// order. Both it and the device poll a varying number of times before they sleep,
// so that entries arrive in all phases of the other side's handshake.
func application(sq *Send, cq *CQ, p peer) error {
	wcs := make([]ib.WC, 5)
	for posted, done := uint64(0), uint64(0); done < messages; {
		for posted < messages && posted-done < window(posted) {
			wr := ib.SendWR{ID: posted, Opcode: ib.WRSend, Flags: ib.SendInline,
				Inline: binary.NativeEndian.AppendUint64(nil, ^posted)}
			err := sq.Push(&wr)
			if errors.Is(err, ib.ErrQueueFull) {
				break
			}
			if err != nil {
				return err
			}
			posted++
		}
		if sq.Publish() {
			if err := p.wake(); err != nil {
				return err
			}
		}
		n := cq.Poll(wcs)
		for spins := 64 * (done % 16); n == 0 && spins > 0; spins-- {
			n = cq.Poll(wcs)
		}
		if n == 0 {
			cq.Arm(false)
			if n = cq.Poll(wcs); n == 0 {
				if err := p.wait(); err != nil {
					return fmt.Errorf("waiting with %d posted and %d done: %w", posted, done, err)
				}
			}
		}
		for _, wc := range wcs[:n] {
			if wc.ID != done || wc.Status != ib.WCSuccess {
				return fmt.Errorf("completion %d: %+v, want it with %v", done, wc, ib.WCSuccess)
			}
			done++
		}
	}
	return nil
}

// device pops all messages and completes each.
func device(sq *Send, cq *CQ, p peer) error {
	var wr ib.SendWR
	sq.Prepare(&wr)
	for done := uint64(0); done < messages; {
		ok, err := sq.Pop(&wr)
		if err != nil {
			return err
		}
		if !ok {
			for spins := done % 128; sq.Len() == 0 && spins > 0; spins-- {
			}
			sq.Sleep()
			if sq.Len() == 0 {
				if err := p.wait(); err != nil {
					return fmt.Errorf("waiting with %d done: %w", done, err)
				}
			}
			sq.Awake()
			continue
		}
		if wr.ID != done || len(wr.Inline) != 8 || binary.NativeEndian.Uint64(wr.Inline) != ^done {
			return fmt.Errorf("request %d: %+v, want %#x inline", done, wr, ^done)
		}
		done++
		sq.Release(1)
		if !cq.Push(&ib.WC{ID: wr.ID}) {
			return errors.New("completion queue overran")
		}
		if cq.TakeArm(false) {
			if err := p.wake(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pipe returns a pipe that the test closes.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func trialSize() int { return SendSize(trialSends, 0, trialInline) + CQSize(trialCQ) }

// deviceSide formats both rings in b.
func deviceSide(t *testing.T, b []byte) (*Send, *CQ) {
	t.Helper()
	sq, err := NewSend(b, trialSends, 0, trialInline)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := NewCQ(b[SendSize(trialSends, 0, trialInline):], trialCQ)
	if err != nil {
		t.Fatal(err)
	}
	return sq, cq
}

func applicationSide(b []byte) (*Send, *CQ, error) {
	sq, err := OpenSend(b)
	if err != nil {
		return nil, nil, err
	}
	cq, err := OpenCQ(b[SendSize(trialSends, 0, trialInline):])
	return sq, cq, err
}

func TestHandshakesBetweenGoroutines(t *testing.T) {
	b := Alloc(trialSize())
	dsq, dcq := deviceSide(t, b)
	asq, acq, err := applicationSide(b)
	if err != nil {
		t.Fatal(err)
	}
	bellR, bellW := pipe(t)
	eventR, eventW := pipe(t)
	result := make(chan error, 1)
	go func() { result <- application(asq, acq, peer{bellW, eventR}) }()
	if err := device(dsq, dcq, peer{eventW, bellR}); err != nil {
		t.Errorf("device: %v", err)
	}
	eventW.Close()
	if err := <-result; err != nil {
		t.Errorf("application: %v", err)
	}
}

func TestSecondProcess(t *testing.T) {
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "ring")
	defer file.Close()
	if err := file.Truncate(int64(trialSize())); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, trialSize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	sq, cq := deviceSide(t, b)
	bellR, bellW := pipe(t)
	eventR, eventW := pipe(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.ExtraFiles = []*os.File{file, bellW, eventR} // descriptors 3, 4, 5
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); errors.Is(err, unix.ENOEXEC) {
		require.Missing(t,
			"the kernel cannot start this test's binary: it runs under user-mode emulation, without binfmt_misc")
	} else if err != nil {
		t.Fatal(err)
	}
	bellW.Close() // so that the wait in device ends if the child dies
	if err := device(sq, cq, peer{eventW, bellR}); err != nil {
		t.Errorf("device: %v", err)
		cancel()
	}
	eventW.Close()
	if err := child.Wait(); err != nil {
		t.Errorf("child: %v\n%s", err, &out)
	}
}

// TestMain also runs as the second process of TestSecondProcess, which attaches to the
// rings in the memory that it inherits.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child() error {
	b, err := unix.Mmap(3, 0, trialSize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	sq, cq, err := applicationSide(b)
	if err != nil {
		return err
	}
	return application(sq, cq, peer{doorbell: os.NewFile(4, "doorbell"), sleep: os.NewFile(5, "event")})
}
