package rxe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// serviceRow is one run of goroced pingpong --service against the C tool for that service on
// rdma_rxe, with the defaults of both, which must be the same.
type serviceRow struct {
	service, side, link, family string
	events                      bool // both ends sleep until completions come
}

// serviceRows returns all combinations, with events once for each service.
func (r serviceRow) kind() string { return r.service }

func (r serviceRow) name() string {
	return fmt.Sprintf("%s-%s-%s-%s-events=%v", r.service, r.side, r.link, r.family, r.events)
}

func serviceRows() []serviceRow {
	var rows []serviceRow
	for _, service := range []string{"uc", "ud", "srq"} {
		for _, side := range []string{client, server} {
			for _, link := range []string{udp, rawsock} {
				for _, family := range []string{v4, v6} {
					rows = append(rows, serviceRow{service, side, link, family, false})
				}
			}
		}
		rows = append(rows, serviceRow{service, client, udp, v4, true})
	}
	return rows
}

// TestServices runs goroced pingpong against ibv_uc_pingpong, ibv_ud_pingpong and
// ibv_srq_pingpong. All check the data.
func TestServices(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	goroced := build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, serviceRows(), serviceRow.kind, serviceRow.name) {
			lab.Row(t, r.name(), func(t testing.TB) {
				l := lab.Shared(t, kernel)
				s := &servicePlay{serviceRow: r}
				s.pingpong = pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced,
					row: row{side: r.side, link: r.link, family: r.family}}
				s.run()
			})
		}
	})
}

type servicePlay struct {
	serviceRow
	pingpong
}

func (s *servicePlay) run() {
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	quiet(s.TB, s.lab)
	before, err := s.vm.Counters(ctx)
	s.must(err)
	if s.side == client {
		s.toTool(ctx)
	} else {
		s.fromTool(ctx)
	}
	after, err := s.vm.Counters(context.Background())
	s.must(err)
	s.explain(before, after)
}

// toTool connects goroced to the C tool.
func (s *servicePlay) toTool(ctx context.Context) {
	tool := s.tool(ctx)
	peer, err := s.vm.Start(ctx, tool[0], tool[1:]...)
	s.must(err)
	s.must(s.vm.WaitListen(ctx, listenPort))
	out, err := s.command(ctx, s.vm.IPv4.String()).CombinedOutput()
	if err != nil {
		s.Errorf("goroced pingpong: %v\n%s", err, out)
		peer.Kill() // without retransmission it may wait for ever
	}
	result, err := peer.Wait()
	s.judge(tool, result, err)
}

// fromTool connects the C tool to goroced.
func (s *servicePlay) fromTool(ctx context.Context) {
	var out bytes.Buffer
	cmd := s.command(ctx)
	cmd.Stdout, cmd.Stderr = &out, &out
	s.must(cmd.Start())
	s.waitListening(ctx)
	tool := append(s.tool(ctx), s.lab.HostIPv4.String())
	result, err := s.vm.Run(ctx, tool[0], tool[1:]...)
	s.judge(tool, result, err)
	if err := cmd.Wait(); err != nil {
		s.Errorf("goroced pingpong: %v\n%s", err, out.Bytes())
	}
}

// quiet resets the changes of other tests to the wire.
func quiet(t testing.TB, l *lab.Lab) {
	t.Helper()
	if err := errors.Join(l.SetMTU(1500), l.SetOffload(true), l.SetLoss(0)); err != nil {
		t.Fatal(err)
	}
}

// options returns the options that both ends have in common.
func (s *servicePlay) options() []string {
	o := []string{"-c", "-n", "300"}
	if s.events {
		o = append(o, "-e")
	}
	return o
}

func (s *servicePlay) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(append([]string{"pingpong", "--service", s.service, "--link", s.link, "--addr", s.hostAddr().String(),
		"-g", "0",
		"--ack-timeout", patience, "--timeout", (rowTimeout / 2).String()}, s.options()...), args...)
	if s.link == udp {
		return s.lab.HostCommandAs(ctx, "nobody", s.goroced, args...)
	}
	return s.lab.HostCommand(ctx, s.goroced, args...)
}

func (s *servicePlay) tool(ctx context.Context) []string {
	index, err := s.vm.GIDIndex(ctx, s.vmAddr())
	s.must(err)
	return append([]string{"ibv_" + s.service + "_pingpong", "-d", lab.RxeDev, "-g", strconv.Itoa(index)},
		s.options()...)
}

// TestServicesOnRNIC runs goroced at both ends: in the guest on the kernel's device, by
// libibverbs, and on the host on the software device.
func TestServicesOnRNIC(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	soft, rnic := build(t), buildRNIC(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		l := lab.Shared(t, kernel)
		quiet(t, l)
		vm := l.VMs[0]
		if err := vm.CopyIn(t.Context(), rnic, "/bin/goroced-rnic"); err != nil {
			t.Fatal(err)
		}
		for _, service := range []string{"rc", "uc", "ud", "srq"} {
			lab.Row(t, service, func(t testing.TB) {
				ctx, cancel := context.WithTimeout(t.Context(), rowTimeout)
				defer cancel()
				args := []string{"pingpong", "--service", service, "-c", "-n", "300"}
				peer, err := vm.Start(ctx, "/bin/goroced-rnic", append(args, "--device", "rnic:"+lab.RxeDev)...)
				if err != nil {
					t.Fatal(err)
				}
				if err := vm.WaitListen(ctx, listenPort); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--link", udp, "--addr", l.HostIPv4.String(), vm.IPv4.String())
				if out, err := l.HostCommand(ctx, soft, args...).CombinedOutput(); err != nil {
					t.Errorf("goroced pingpong here: %v\n%s", err, out)
				}
				if result, err := peer.Wait(); err != nil || result.ExitCode != 0 {
					t.Errorf("goroced pingpong in the guest: %v, exit code %d, want 0\n%s%s", err, result.ExitCode,
						result.Stdout, result.Stderr)
				}
			})
		}
	})
}
