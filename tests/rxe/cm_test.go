package rxe

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// cmTimeout bounds one row, longTimeout one of those that take minutes. Linux retransmits a lost REQ only after 4.6 s.
const (
	cmTimeout   = 90 * time.Second
	longTimeout = 40 * time.Minute
)

// TestCM connects by address, from and to librdmacm's tools. No objects may be left in the
// guest, nor at our end, which cmpeer checks.
func TestCM(t *testing.T) {
	programs := buildCM(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, cmRows(), cmRow.tool, cmRow.line) {
			lab.Row(t, r.line(), func(t testing.TB) {
				p := newCMPlay(t, programs, kernel, r.link, r.family)
				p.run(&r)
			})
		}
	})
}

// TestRstreamSizes transfers data of each size of rstream's series, checked at both ends.
// The series itself takes minutes in an emulated guest.
func TestRstreamSizes(t *testing.T) {
	require.FullRun(t, "rows of the tool show most of it, too")
	programs := buildCM(t)
	tool := cmTools[slices.IndexFunc(cmTools, func(c cmTool) bool { return c.name == "rstream" })]
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, string(kernel), func(t testing.TB) {
			p := newCMPlay(t, programs, kernel, udp, v4)
			p.allSizes(&tool, "-S 65536 -I 2 -C 5")
		})
	})
}

// allSizes runs rstream with each size of its series, in turn from and to our end. options are those of the tool that
// say what is sent.
func (p *cmPlay) allSizes(tool *cmTool, options string) {
	p.Helper()
	for i, size := range rstreamSizes() {
		r := *tool
		for _, command := range []*string{&r.server, &r.client, &r.ourServer, &r.ourClient} {
			*command = strings.Replace(*command, options, fmt.Sprintf("-S %d -I 1 -C 1", size), 1)
		}
		p.run(&cmRow{&r, []string{client, server}[i%2], udp, v4, 0})
		if p.Failed() {
			p.Fatalf("with transfers of %d bytes", size)
		}
	}
}

// rstreamSizes returns 64 bytes to 6 MiB: powers of two, and from 128 on also the sizes
// halfway between them.
func rstreamSizes() []int {
	sizes := []int{64}
	for n := 128; n <= 4<<20; n *= 2 {
		sizes = append(sizes, n, n+n/2)
	}
	return sizes
}

// cmPrograms are the paths of programs by their names.
type cmPrograms map[string]string

// guestTool is the path of cmtool in the guest.
const guestTool = "/usr/bin/cmtool"

// cmPlay has a guest, and the programs and the link for tests with it.
type cmPlay struct {
	pingpong
	programs cmPrograms

	// At our end the tool runs over the library; nil and "" if our own programs do.
	daemon *ourDaemon
	libs   string
}

func newCMPlay(t testing.TB, programs cmPrograms, kernel lab.Kernel, link, family string) *cmPlay {
	t.Helper()
	l := lab.Shared(t, kernel)
	quiet(t, l)
	p := &cmPlay{programs: programs,
		pingpong: pingpong{TB: t, lab: l, vm: l.VMs[0], row: row{link: link, family: family}}}
	p.must(p.vm.CopyIn(t.Context(), programs["cmtool"], guestTool))
	return p
}

func (p *cmPlay) run(r *cmRow) {
	p.Helper()
	limit := cmTimeout
	if r.long {
		limit = longTimeout
	}
	ctx, cancel := context.WithTimeout(p.Context(), limit)
	defer cancel()
	p.loss = r.loss
	before, err := p.vm.Counters(ctx)
	p.must(err)
	resources, err := p.vm.Output(ctx, "rdma", "resource", "show")
	p.must(err)
	p.must(p.lab.SetCMLoss(r.loss))

	if r.side == client {
		p.toTool(ctx, r.cmTool)
	} else {
		p.fromTool(ctx, r.cmTool)
	}

	after, err := p.vm.Counters(p.Context())
	p.must(err)
	p.explain(before, after)
	if dropped, err := p.lab.Dropped(); err != nil || r.loss > 0 && dropped == 0 {
		p.Errorf("dropped %d packets, %v", dropped, err)
	}
	ctx, cancel = context.WithTimeout(p.Context(), cmTimeout)
	defer cancel()
	if err := p.vm.Until(ctx, fmt.Sprintf("[ \"$(rdma resource show)\" = '%s' ]",
		strings.TrimRight(resources, "\n"))); err != nil {
		left,
			_ := p.vm.Output(p.Context(), "sh", "-c",
			"rdma resource show; rdma resource show cm_id; rdma resource show qp")
		p.Errorf("left over in the guest, which had %s: %v\n%s", resources, err, left)
	}
}

// toTool connects our end to the tool.
func (p *cmPlay) toTool(ctx context.Context, tool *cmTool) {
	p.Helper()
	server := p.words(tool.server)
	peer, err := p.vm.Start(ctx, server[0], server[1:]...)
	p.must(err)
	if tool.ready != "" {
		err = p.vm.Until(ctx, tool.ready)
	} else {
		err = p.vm.WaitListenCM(ctx, tool.port)
	}
	p.must(err)
	us := p.start(ctx, tool.ourClient)
	ourErr := us.Wait()
	if ourErr != nil || tool.stays {
		peer.Kill()
	}
	result, err := peer.Wait()
	if tool.stays {
		result.ExitCode, err = 0, nil
	}
	p.judgeBoth(us, ourErr, tool.weSay, server, result, err, "")
}

// fromTool connects the tool to our end.
func (p *cmPlay) fromTool(ctx context.Context, tool *cmTool) {
	p.Helper()
	client := p.words(tool.client)
	us, result, err := p.tryTool(ctx, tool, client)
	early := func() bool { return tool.early != "" && strings.Contains(result.Stderr+result.Stdout, tool.early) }
	for tries := 10; tries > 0 && early(); tries-- {
		us.Process.Kill()
		_ = us.Wait()
		us, result, err = p.tryTool(ctx, tool, client)
	}
	for tries := 5; tool.unsure && tries > 0 && !us.says(ctx, tool.weSay); tries-- {
		result, err = p.vm.Run(ctx, client[0], client[1:]...)
	}
	if err != nil || result.ExitCode != 0 || tool.stays {
		us.Process.Kill()
	}
	ourErr := us.Wait()
	if tool.stays {
		ourErr = nil
	}
	p.judgeBoth(us, ourErr, tool.weSay, client, result, err, tool.said)
}

// tryTool starts our end, and connects the tool to it.
func (p *cmPlay) tryTool(ctx context.Context, tool *cmTool, client []string) (*ourProcess, lab.Result, error) {
	p.Helper()
	us := p.start(ctx, tool.ourServer)
	switch {
	case p.daemon == nil:
		us.waitReady(ctx)
	case tool.ourReady != "":
		p.awaitHost(ctx, us, tool.ourReady)
	default:
		p.awaitListener(ctx, us)
	}
	result, err := p.vm.Run(ctx, client[0], client[1:]...)
	return us, result, err
}

// judgeBoth checks the results of both programs, and logs their output if one has failed.
func (p *cmPlay) judgeBoth(us *ourProcess, ourErr error, weSay string, tool []string, result lab.Result, err error,
	said string) {
	p.Helper()
	theirs := result.Stdout + result.Stderr
	switch {
	case ourErr != nil || err != nil || result.ExitCode != 0:
	case !strings.Contains(us.output(), weSay) || !regexp.MustCompile(said).MatchString(theirs):
		ourErr = fmt.Errorf("want %q here and %q there", weSay, said)
	default:
		return
	}
	p.Errorf("%v: %v\n%s\n%v: %v, exit code %d\n%s", us.Args, ourErr, us.output(), tool, err, result.ExitCode, theirs)
}

// words splits a command line and substitutes the addresses.
func (p *cmPlay) words(command string) []string {
	return strings.Fields(strings.NewReplacer("$HOST", p.hostAddr().String(), "$VM",
		p.vmAddr().String()).Replace(command))
}

// ourProcess is a program at our end.
type ourProcess struct {
	*exec.Cmd
	t     testing.TB
	ready chan struct{} // closed once the program has printed that it listens

	mu   sync.Mutex
	said bytes.Buffer
}

// start starts one of our programs. Over udp it runs as nobody, without any capability.
func (p *cmPlay) start(ctx context.Context, command string) *ourProcess {
	p.Helper()
	words := p.words(command)
	if p.daemon != nil {
		us := &ourProcess{t: p.TB, ready: make(chan struct{}), Cmd: p.overLibrary(ctx, words)}
		us.Stdout, us.Stderr = us, us
		p.must(us.Start())
		return us
	}
	args := append(words[1:], "--link", p.link, "--addr", p.hostAddr().String())
	us := &ourProcess{t: p.TB, ready: make(chan struct{})}
	if p.link == udp {
		us.Cmd = p.lab.HostCommandAs(ctx, "nobody", p.programs[words[0]], args...)
	} else {
		us.Cmd = p.lab.HostCommand(ctx, p.programs[words[0]], args...)
	}
	us.Stdout, us.Stderr = us, us
	p.must(us.Start())
	return us
}

// Write receives the program's output.
func (p *ourProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.listens()
	p.said.Write(b)
	if !before && p.listens() {
		close(p.ready)
	}
	return len(b), nil
}

// listens reports whether the program has printed that it listens: cmpeer "listening",
// goroced "waiting for a client", its daemon "msg=ready".
func (p *ourProcess) listens() bool {
	for _, word := range []string{"listening\n", "waiting for ", "msg=ready"} {
		if bytes.Contains(p.said.Bytes(), []byte(word)) {
			return true
		}
	}
	return false
}

func (p *ourProcess) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// says reports whether the program prints text within a second.
func (p *ourProcess) says(ctx context.Context, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for !strings.Contains(p.output(), text) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (p *ourProcess) waitReady(ctx context.Context) {
	p.t.Helper()
	select {
	case <-p.ready:
	case <-ctx.Done():
		p.t.Fatalf("%v does not listen: %v\n%s", p.Args, ctx.Err(), p.output())
	}
}
