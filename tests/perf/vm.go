package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// guestPair is two guests of the rxe lab. They are shared by several wires, which differ in the loss of the bridge.
type guestPair struct {
	mtu int
	lab *lab.Lab // nil until the first wire
}

// guestProgram is the path of this program in a guest.
const guestProgram = "/perf"

// wire returns a wire between the guests.
func (g *guestPair) wire(ctx context.Context, id WireID) (*wire, error) {
	if g.lab == nil {
		if err := g.start(ctx); err != nil {
			return nil, err
		}
	}
	near, far := &guest{g.lab.VMs[0]}, &guest{g.lab.VMs[1]}
	return &wire{WireID: id, near: near, far: far,
		enter: func(context.Context) error { return g.lab.SetLoss(id.Loss) },
		close: func() { _ = g.lab.Close() },
	}, nil
}

// start boots the guests, and copies this program into them.
func (g *guestPair) start(ctx context.Context) (err error) {
	if g.lab, err = lab.Start(ctx, lab.Config{Kernels: []lab.Kernel{lab.Linux61, lab.Linux61}}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.lab.Close())
		}
	}()
	if err := g.lab.SetMTU(g.mtu); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "goroce-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "perf")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program,
		"github.com/goroce/goroce/tests/perf/cmd/perf")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program for the guests (run this within the module): %w: %s", err, out)
	}
	for _, vm := range g.lab.VMs {
		if err := vm.CopyIn(ctx, program, guestProgram); err != nil {
			return err
		}
		if err := stopRxe(ctx, vm); err != nil {
			return err
		}
		// The bridge must drop single packets. If the kernel cannot segment for the device, there is nothing to switch
		// off.
		if _, err := vm.Run(ctx, "ethtool", "-K", ethDev, "tx-udp-segmentation", "off"); err != nil {
			return err
		}
	}
	return nil
}

// stopRxe removes rdma_rxe from the guest, because the module occupies UDP port 4791.
func stopRxe(ctx context.Context, vm *lab.VM) error {
	if _, err := vm.Output(ctx, "rdma", "link", "delete", lab.RxeDev); err != nil {
		return err
	}
	return vm.Until(ctx, "rmmod rdma_rxe") // its last users disappear a moment later
}

func startRxe(ctx context.Context, vm *lab.VM) error {
	_, err := vm.Output(ctx, "sh", "-c",
		"insmod /modules/rdma_rxe.ko && rdma link add "+lab.RxeDev+" type rxe netdev "+ethDev)
	return err
}

// guest is a site in a VM.
type guest struct{ *lab.VM }

func (g *guest) addr() netip.Addr { return g.IPv4 }

func (g *guest) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := g.Output(ctx, name, args...)
	return []byte(out), err
}

func (g *guest) half(ctx context.Context, j Job, _ *Options) ([]byte, error) {
	j.NetIf, j.Profile = ethDev, false
	result, err := g.Run(ctx, "env", jobEnv+"="+j.text(), guestProgram)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", g.Name, result.ExitCode, strings.TrimSpace(result.Stderr))
	}
	return []byte(result.Stdout), err
}

// guestTime is the shortest measurement in guests, which are slow.
const guestTime = 2 * time.Second

// guestStream measures WRITEs of goroce for as long as rxeStream measures.
func guestStream(size int) measure {
	return func(ctx context.Context, w *wire, o *Options) (Result, error) {
		longer := *o
		longer.Duration = max(o.Duration, guestTime)
		return pair(stream(ib.WRWrite, size))(ctx, w, &longer)
	}
}

// rxeStream measures WRITEs of rdma_rxe with perftest, which supports whole seconds only.
func rxeStream(size int) measure {
	return func(ctx context.Context, w *wire, o *Options) (Result, error) { return rxeWrites(ctx, w, o, size) }
}

func rxeWrites(ctx context.Context, w *wire, o *Options, size int) (_ Result, err error) {
	near, far := w.near.(*guest), w.far.(*guest)
	seconds := int(max(o.Duration, guestTime).Seconds())
	ctx, cancel := context.WithTimeout(ctx, time.Duration(3*seconds+60)*time.Second)
	defer cancel()
	for _, g := range []*guest{near, far} {
		if err := startRxe(ctx, g.VM); err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, stopRxe(context.WithoutCancel(ctx), g.VM)) }()
	}
	tool := func(g *guest) ([]string, error) {
		gid, err := g.GIDIndex(ctx, g.IPv4)
		return []string{"-d", lab.RxeDev, "-x", strconv.Itoa(gid), "-s", strconv.Itoa(size), "-t",
			strconv.Itoa(depth), "-m", strconv.Itoa(pathMTU(w.MTU)), "-D", strconv.Itoa(seconds), "-F",
			"--report_gbits"}, err
	}
	serverArgs, err := tool(far)
	if err != nil {
		return Result{}, err
	}
	clientArgs, err := tool(near)
	if err != nil {
		return Result{}, err
	}
	server, err := far.Start(ctx, "ib_write_bw", serverArgs...)
	if err != nil {
		return Result{}, err
	}
	if err := far.WaitListen(ctx, perftestPort); err != nil {
		return Result{}, err
	}
	out, err := near.Output(ctx, "ib_write_bw", append(clientArgs, far.IPv4.String())...)
	if err != nil {
		cancel()
	}
	if _, serverErr := server.Wait(); err == nil {
		err = serverErr
	}
	if err != nil {
		return Result{}, err
	}
	return parseRxe(out, size, pathMTU(w.MTU), seconds)
}

const perftestPort = 18515

func parseRxe(out string, size, mtu, seconds int) (Result, error) {
	line, err := perftestLine(out)
	if err != nil {
		return Result{}, fmt.Errorf("ib_write_bw: %w", err)
	}
	gbps := line[3]
	r := Result{Seconds: float64(seconds), Messages: gbps * 1e9 / 8 / float64(size) * float64(seconds)}
	return r.of(size, packets(size, mtu)), nil
}
