package perf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
)

// Job is the task of an end. It is passed as JSON to the process that runs it.
type Job struct {
	Kind     string
	Far      bool
	Self     netip.Addr
	Peer     netip.Addr
	NetIf    string        // of Self
	MTU      int           // IP MTU of the wire
	Duration time.Duration // of the measurement, after the warm-up

	// Parameters of the kind:
	Op         ib.WROpcode
	Size       int    // size of a message, or of a segment
	Depth      int    // requests in flight of each QP
	QPs        int    // 0 stands for 1
	Link       string // a link of package host; "" stands for "udp"
	RecvBuffer int    // bytes of the udp link's socket buffer, 0 for its default
	Memory     string // memory of a client of a daemon; "": no daemon, but a device of its own
	Events     bool   // wait for events when there is nothing to poll
	Tool       string // program of perftest; its memory is its own unless Memory says otherwise
	Messages   int    // of a run of Tool; 0: as many as the Duration has
	Trace      bool   // count the system calls of Tool

	User    bool // run it as an ordinary user
	Profile bool // write a CPU profile to descriptor 3
	Leash   bool // end when standard input ends

	daemon *daemon // the running daemon of this end; nil if there is none
}

// text returns the job for the environment of a child.
func (j *Job) text() string {
	text, err := json.Marshal(j)
	if err != nil {
		panic(err) // a Job can always be encoded
	}
	return string(text)
}

// half is the task of an end in its process.
type half func(j *Job, p *peer) (Result, error)

// kinds are the kinds of jobs: the halves of the near and of the far end.
var kinds = map[string]struct{ near, far half }{
	"bare":     {bareSend, bareReceive},
	"shaped":   {shapedSend, shapedReceive},
	"bareping": {barePing, barePong},
	"ring":     {ringSend, ringReceive},
	"stream":   {streamNear, streamFar},
	"pingpong": {pingNear, pingFar},
	"idle":     {idle, idle},
	"connect":  {dialNear, acceptFar},
	"loop":     {loopNear, standBy},
	"dropin":   {dropinRun, dropinRun},
	"cost":     {dropinCost, dropinCost},
}

// jobEnv is the environment variable with a child's Job.
const jobEnv = "GOROCE_PERF_JOB"

// Child runs an end, and does not return, if this process was started as one. Programs that call Run must call it
// first.
func Child() {
	text, ok := os.LookupEnv(jobEnv)
	if !ok {
		return
	}
	if err := child([]byte(text), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(text []byte, out io.Writer) error {
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("%s: %w", jobEnv, err)
	}
	if j.Leash {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	if j.Profile {
		if err := pprof.StartCPUProfile(os.NewFile(3, "profile")); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r, err := j.do()
	var skip *SkipError
	if errors.As(err, &skip) {
		r, err = Result{Skip: skip.Reason}, nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

func (j *Job) do() (Result, error) {
	switch j.Kind { // those without one other end
	case daemonKind:
		return Result{}, serveDevice(j)
	case gatherKind:
		return gather(j)
	}
	kind, ok := kinds[j.Kind]
	if !ok {
		return Result{}, fmt.Errorf("no kind of job is called %q", j.Kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout())
	defer cancel()
	p, err := meet(ctx, j)
	if err != nil {
		return Result{}, err
	}
	defer p.conn.Close()
	if j.Far {
		return kind.far(j, p)
	}
	return kind.near(j, p)
}

// timeout is the limit of a job.
func (j *Job) timeout() time.Duration { return 30*time.Second + 3*j.Duration }

// grace is how long one end may go on when the other has failed.
const grace = 2 * time.Second

// SkipError says why a row cannot be measured here. It is not a failure.
type SkipError struct{ Reason string }

func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// pair measures a row by running both halves of a kind.
func pair(j Job) measure {
	return func(ctx context.Context, w *wire, o *Options) (Result, error) {
		j.MTU, j.Duration, j.Profile = w.MTU, o.Duration, o.profile != nil
		far := j
		far.Far = true
		r, err := together(ctx, o, task{w.near, w.far, j}, task{w.far, w.near, far})
		if skip := cmp.Or(r[0].Skip, r[1].Skip); skip != "" {
			return Result{}, &SkipError{skip}
		}
		if err != nil {
			return Result{}, err
		}
		return merge(r[0], r[1]), nil
	}
}

// task is a Job of one end.
type task struct {
	self, peer site
	job        Job
}

// together runs tasks that need each other, and returns their results. When one has failed the others have to end soon.
func together(ctx context.Context, o *Options, tasks ...task) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, tasks[0].job.timeout())
	defer cancel()
	results, failed := make([]Result, len(tasks)), make([]error, len(tasks))
	var running sync.WaitGroup
	for i, t := range tasks {
		running.Go(func() {
			if results[i], failed[i] = runHalf(ctx, t.self, t.peer, t.job, o); failed[i] != nil {
				time.AfterFunc(grace, cancel)
			}
		})
	}
	running.Wait()
	return results, errors.Join(failed...)
}

// runHalf runs j at one end.
func runHalf(ctx context.Context, self, peer site, j Job, o *Options) (Result, error) {
	name := "near end"
	if j.Far {
		name = "far end"
	}
	j.Self, j.Peer = self.addr(), peer.addr()
	out, err := self.half(ctx, j, o)
	var r Result
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(out)).Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
