package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/remote"
	"github.com/goroce/goroce/roce/rsocket"
)

// Ports of role serve.
const (
	streamPort = "7471"
	memoryPort = "7472"
)

// streamOptions: retries take 1.9 s.
var streamOptions = rsocket.Options{AckTimeout: 16, ReceiveBuffer: 1 << 16, SendBuffer: 1 << 16, KeepAlive: time.Second}

// Memory of role serve: a slot for each connection of role memory. A slot begins with a counter.
const (
	slots    = 32
	slotSize = 64 << 10
	counter  = 8
)

// service is a server: it returns what arrives by streams, and has memory that its clients use.
type service struct {
	c     *child
	life  uint64 // tells clients whether counters have begun anew
	mr    ib.MR
	pd    ib.PD
	mu    sync.Mutex
	conns [slots]*rdmacm.Conn
}

// served is the memory of role serve. It outlives the devices with which it is registered.
var served = sync.OnceValues(func() ([]byte, error) { return client.Alloc(slots * slotSize) })

var life = rand.Uint64()

func serve(c *child, cm *rdmacm.CM) {
	s := &service{c: c, life: life}
	buf, err := served()
	if err == nil {
		s.pd, err = cm.Device().AllocPD()
	}
	if err == nil {
		s.mr, err = s.pd.RegMR(ib.MRInit{Buf: buf,
			Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic})
	}
	var streams *rsocket.Listener
	var requests *rdmacm.Listener
	if err == nil {
		streams, err = rsocket.Listen(context.Background(), cm, ":"+streamPort, streamOptions)
	}
	if err == nil {
		requests, err = cm.Listen(context.Background(), ":"+memoryPort, rdmacm.ListenConfig{})
	}
	if err != nil {
		c.failed(err)
		return
	}
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go s.echo(conn)
		}
	}()
	for {
		r, err := requests.Request(context.Background())
		if err != nil {
			c.failed(err)
			return
		}
		go s.accept(r)
	}
}

// echo returns what arrives. That the peer has ended is the peer's to report.
func (s *service) echo(conn net.Conn) {
	defer conn.Close()
	if _, err := io.Copy(conn, conn); err != nil {
		s.c.failed(err)
	}
}

// accept lends a client its slot. An earlier connection of the slot ends before: nothing that is under way there may
// change the slot any more.
func (s *service) accept(r *rdmacm.Request) {
	slot := int(r.PrivateData()[0])
	if slot >= slots {
		_ = r.Reject(nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.conns[slot]; old != nil {
		_ = old.Close()
	}
	offer := ib.RemoteBufferOf(s.mr)
	offer.Addr, offer.Length = offer.Addr+uint64(slot*slotSize), slotSize
	private, _ := offer.AppendBinary(binary.BigEndian.AppendUint64(nil, s.life))
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	conn, err := r.Accept(ctx, rdmacm.Config{PD: s.pd, PrivateData: private,
		Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic})
	if errors.Is(err, rdmacm.ErrPeer) { // it asks again, for a smaller path MTU
		return
	}
	if err != nil {
		s.c.failed(err)
		return
	}
	s.conns[slot] = conn
}

// dialTime limits the making of a connection.
const dialTime = 8 * time.Second

// stream sends pieces over streams and compares what comes back.
func stream(c *child, cm *rdmacm.CM) {
	c.each(func(_ int, rng *rand.Rand) error {
		ctx, cancel := context.WithTimeout(context.Background(), dialTime)
		defer cancel()
		conn, err := rsocket.Dial(ctx, cm, net.JoinHostPort(c.Host, streamPort), streamOptions)
		if err != nil {
			return err
		}
		defer conn.Close()
		for {
			piece := make([]byte, 1+rng.IntN(40_000))
			fill(piece, rng)
			got := make([]byte, len(piece))
			if _, err := conn.Write(piece); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, got); err != nil {
				return err
			}
			if !bytes.Equal(got, piece) {
				return fmt.Errorf("%w: %d bytes of a stream come back changed", errWrong, len(piece))
			}
			c.done.Add(1)
			pause(rng)
		}
	})
}

// tally is what a client knows of its counter.
type tally struct {
	life     uint64 // of the server
	low, top uint64 // the counter is one of these, or between
}

// memory uses slots of the server: it reads what it has written, and counts.
func memory(c *child, cm *rdmacm.CM) {
	tallies := make([]tally, c.Count)
	c.each(func(i int, rng *rand.Rand) error {
		mem, end, err := c.lend(cm, c.Slot+i, &tallies[i])
		if err != nil {
			return err
		}
		defer end()
		for {
			if err := use(mem, rng); err != nil {
				return err
			}
			if err := tallies[i].count(mem); err != nil {
				if errors.Is(err, errWrong) {
					tallies[i] = tally{} // what follows is judged by itself
				}
				return err
			}
			c.done.Add(1)
			pause(rng)
		}
	})
}

// lend connects to a slot of the server. What is returned last ends the connection.
func (c *child) lend(cm *rdmacm.CM, slot int, t *tally) (*remote.Memory, func() error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	conn, err := cm.Dial(ctx, net.JoinHostPort(c.Host, memoryPort), rdmacm.Config{PrivateData: []byte{byte(slot)}})
	if err != nil {
		return nil, nil, err
	}
	var offer ib.RemoteBuffer
	private := conn.PrivateData()
	life := binary.BigEndian.Uint64(private)
	if err := offer.UnmarshalBinary(private[8:]); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	mem, err := conn.Memory(offer)
	if err == nil && t.life != life {
		var now uint64
		if now, err = read(ctx, mem); err == nil {
			*t = tally{life, now, now}
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return mem, conn.Close, nil
}

// useTime limits an operation; it is longer than retries.
const useTime = 20 * time.Second

// use writes to the memory, and reads it back.
func use(mem *remote.Memory, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), useTime)
	defer cancel()
	data := make([]byte, 1+rng.IntN(20_000))
	fill(data, rng)
	off := int64(counter + rng.IntN(slotSize-counter-len(data)))
	if _, err := mem.WriteAt(ctx, data, off); err != nil {
		return err
	}
	got := make([]byte, len(data))
	if _, err := mem.ReadAt(ctx, got, off); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%w: %d bytes that were written are read changed", errWrong, len(data))
	}
	return nil
}

// read reads the counter, which is in the byte order of this machine.
func read(ctx context.Context, mem *remote.Memory) (uint64, error) {
	var b [counter]byte
	_, err := mem.ReadAt(ctx, b[:], 0)
	return binary.NativeEndian.Uint64(b[:]), err
}

// atomics is how many atomics are under way at a time.
const atomics = 4

// count adds to the counter, and checks that each atomic was carried out once: each returns another number, and those
// that have failed may or may not have been carried out.
func (t *tally) count(mem *remote.Memory) error {
	ctx, cancel := context.WithTimeout(context.Background(), useTime)
	defer cancel()
	var olds [atomics]uint64
	var errs [atomics]error
	var all sync.WaitGroup
	for i := range atomics {
		all.Go(func() { olds[i], errs[i] = mem.FetchAdd(ctx, 0, 1) })
	}
	all.Wait()
	before := *t
	t.top += atomics
	var got []uint64
	for i, err := range errs {
		if err == nil {
			t.low++
			got = append(got, olds[i])
		}
	}
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) ||
		len(got) > 0 && (got[0] < before.low || got[len(got)-1] >= t.top) {
		return fmt.Errorf("%w: atomics return %d, the counter was %+v", errWrong, got, before)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	now, err := read(ctx, mem)
	if err == nil && (now < t.low || now > t.top) {
		err = fmt.Errorf("%w: the counter is %d after %d atomics, it was %+v", errWrong, now, atomics, before)
	}
	if err == nil {
		t.low, t.top = now, now
	}
	return err
}

// probe has the daemon do something small all the time, between two queue pairs of its own: how long that takes says
// whether the daemon stands still.
func probe(c *child, cm *rdmacm.CM) {
	const long = 400 * time.Millisecond
	var t tally
	c.each(func(_ int, _ *rand.Rand) error {
		mem, end, err := c.lend(cm, c.Slot, &t)
		if err != nil {
			return err
		}
		defer end()
		for {
			ctx, cancel := context.WithTimeout(context.Background(), useTime)
			began := time.Now()
			_, err := read(ctx, mem)
			cancel()
			if err != nil {
				return err
			}
			if stood := time.Since(began); stood > long {
				c.say(report{Stood: stood})
			}
			c.done.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	})
}
