package soak

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/rdmacm"
)

// roleEnv is the environment variable that makes this program a child in the named role.
const roleEnv = "GOROCE_SOAK_ROLE"

// roles are what children do, on a device of their daemon. A role returns when the device is gone.
var roles = map[string]func(c *child, cm *rdmacm.CM){
	"serve":  serve,
	"stream": stream,
	"memory": memory,
	"probe":  probe,
}

// job is what a child is told.
type job struct {
	Socket string
	Host   string // address of the host with the server
	Seed   uint64
	Count  int // connections at a time
	Slot   int // the first of the server's slots that role memory uses
}

// report is a line of a child: that it has made progress, or that something has failed.
type report struct {
	Done  int64         // operations since the last report
	Kind  string        // of the failure, "" for none
	Text  string        //
	Stood time.Duration // role probe: how long the daemon took for an operation
}

// Kinds of failures, besides the texts of completion statuses.
const (
	gone         = "the daemon is gone"
	disconnected = "disconnected"
	rejected     = "rejected"
	timedOut     = "timeout"
	unreachable  = "unreachable"
	wrongData    = "wrong data"
	stood        = "stands still"
	other        = "other"
)

// kinds says how to recognize a failure. The first row that matches counts.
var kinds = []struct {
	kind string
	is   func(err error) bool
}{
	{gone, is(client.ErrGone, os.ErrNotExist, syscall.ECONNREFUSED)},
	{wrongData, is(errWrong)},
	{rejected, as[*rdmacm.RejectError]},
	{unreachable, as[*rdmacm.UnreachableError]},
	{timedOut, as[*rdmacm.TimeoutError]},
	{timedOut, is(context.DeadlineExceeded, os.ErrDeadlineExceeded)},
	{disconnected, is(rdmacm.ErrDisconnected, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.EPIPE,
		syscall.ECONNRESET)},
}

func is(list ...error) func(error) bool {
	return func(err error) bool {
		for _, e := range list {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// errWrong is the error of data that is not what was sent.
var errWrong = errors.New(wrongData)

// kindOf returns the kind of a failure.
func kindOf(err error) string {
	var wc *ib.WCError
	if errors.As(err, &wc) {
		return wc.Status.String()
	}
	for _, k := range kinds {
		if k.is(err) {
			return k.kind
		}
	}
	return other
}

// child is a child's own view.
type child struct {
	job
	mu   sync.Mutex
	out  *json.Encoder
	done atomic.Int64
}

// say sends a report, with what was done since the last one.
func (c *child) say(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Done = c.done.Swap(0)
	_ = c.out.Encode(r)
}

// failed reports a failure. That of a device that is gone comes once for each of its users, so it waits a little.
func (c *child) failed(err error) {
	c.say(report{Kind: kindOf(err), Text: err.Error()})
	time.Sleep(50 * time.Millisecond)
}

// runChild is a child's main. A device that is gone is opened again, and the role begins anew.
func runChild(role string) {
	c := &child{out: json.NewEncoder(os.Stdout)}
	if err := json.NewDecoder(os.Stdin).Decode(&c.job); err != nil {
		panic(err)
	}
	go func() {
		for range time.Tick(200 * time.Millisecond) {
			c.say(report{})
		}
	}()
	for {
		dev, err := client.Dial(context.Background(), client.Options{Socket: c.Socket})
		if err != nil {
			c.failed(err)
			continue
		}
		cm, err := rdmacm.Open(dev, rdmacm.Options{})
		if err == nil {
			roles[role](c, cm)
			_ = cm.Close()
		} else {
			c.failed(err)
		}
		_ = dev.Close()
	}
}

// each runs f for each of the child's connections, again and again until the device is gone.
func (c *child) each(f func(i int, rng *rand.Rand) error) {
	var all sync.WaitGroup
	for i := range c.Count {
		rng := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		all.Go(func() {
			for {
				err := f(i, rng)
				c.failed(err)
				if kindOf(err) == gone || errors.Is(err, ib.ErrClosed) {
					return
				}
			}
		})
	}
	all.Wait()
}

// fill makes random bytes.
func fill(b []byte, rng *rand.Rand) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// pause is the time between two operations.
func pause(rng *rand.Rand) { time.Sleep(time.Duration(rng.IntN(int(40 * time.Millisecond)))) }
