package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// program is a child in a role on a host, which is started again when it ends.
type program struct {
	s    *soak
	host *host
	role string
	job  job
	runs atomic.Pointer[process]
	done atomic.Int64 // operations
	last atomic.Int64 // time of the last one, in Unix milliseconds
}

func (p *program) String() string { return fmt.Sprintf("%s on %s", p.role, p.host.name) }

func (p *program) process() *process { return p.runs.Load() }

// keep starts a program, and again whenever it has ended, until the soak is over.
func (s *soak) keep(h *host, role string, j job) *program {
	j.Socket = h.socket
	p := &program{s: s, host: h, role: role, job: j}
	s.programs = append(s.programs, p)
	p.start()
	s.keepers.Go(func() {
		for {
			select {
			case <-s.over:
				p.process().kill()
				return
			case <-p.process().done:
				if out := p.process().out.String(); out != "" {
					s.Errorf("%v has ended: %v\n%.4000s", p, p.process().err, out)
				}
				p.job.Seed++
				p.start()
			}
		}
	})
	return p
}

func (p *program) start() {
	exe, err := os.Executable()
	if err != nil {
		p.s.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+p.role)
	in, err := cmd.StdinPipe()
	if err != nil {
		p.s.Fatal(err)
	}
	r, w := io.Pipe()
	cmd.Stdout = w
	go p.listen(r)
	run := start(p.s, p.host.ns, cmd)
	if err := json.NewEncoder(in).Encode(p.job); err != nil {
		p.s.Errorf("%v: %v", p, err)
	}
	p.runs.Store(run)
	go func() {
		<-run.done
		_ = w.Close() // listen ends
	}()
}

// listen reads what the child reports, until it ends.
func (p *program) listen(r io.Reader) {
	for in := json.NewDecoder(r); ; {
		var line report
		if in.Decode(&line) != nil {
			return
		}
		if line.Done > 0 {
			p.done.Add(line.Done)
			p.last.Store(time.Now().UnixMilli())
		}
		if line.Kind != "" {
			p.s.failed(entry{at: time.Now(), who: p.String(), kind: line.Kind, text: line.Text})
		}
		if line.Stood > 0 {
			p.s.stood(p, line.Stood)
		}
	}
}

// failed notes a failure. The first that nothing explains is described with all that hosts know at the time.
func (s *soak) failed(e entry) {
	if !s.ledger.add(e) {
		return
	}
	s.describe.Do(func() {
		text := fmt.Sprintf("%v\nactive:\n%s", e, s.ledger.recent())
		for _, h := range s.hosts {
			text += h.state()
		}
		s.strange.Store(&text)
	})
}

// longStand is how long a daemon may take for something small. Beyond, it must have waited for a processor.
const longStand = time.Second

// stood notes that a daemon has done nothing for a time.
func (s *soak) stood(probe *program, took time.Duration) {
	h, to := probe.host, time.Now()
	from := to.Add(-took)
	waited := s.watch.waited(h, probe, from)
	load, _ := os.ReadFile("/proc/loadavg")
	s.say("the daemon of %s took %v for a read of its own; threads waited %v for a processor, load %.15s", h.name,
		took.Round(time.Millisecond), waited.Round(time.Millisecond), load)
	if took < longStand {
		return
	}
	s.ledger.was("the daemon of "+h.name+" did nothing", loss, from, to)
	if waited < took/2 {
		s.failed(entry{at: to, who: "the daemon of " + h.name, kind: stood,
			text: fmt.Sprintf("for %v; its threads waited %v for a processor", took, waited)})
	}
}
