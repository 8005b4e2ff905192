// Command rxelab boots an rxe lab and reads commands for its guests from standard
// input until the input ends:
//
//	rxelab [-kernels 6.1,6.12] [-cpus 1] [-mtu 1500] [-loss 0] [-keep]
//
// A line is a shell command for the first guest; "@2 ibv_devinfo" is one for the
// second. A command ends by an interrupt, or after an hour. A command with & at its
// end runs concurrently with the following ones, and prints its output when it ends:
//
//	ibv_rc_pingpong -g 1 &
//	@2 sleep 1; ibv_rc_pingpong -g 1 10.77.0.2
//
// With -keep the lab stays up after the end of the input until an interrupt.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/tests/rxe/lab"
)

func main() {
	kernels := flag.String("kernels", string(lab.Linux61), "`series` of each guest's kernel, comma-separated")
	cpus := flag.Int("cpus", 1, "virtual CPUs of each guest")
	mtu := flag.Int("mtu", lab.DefaultMTU, "MTU of the wire, in `bytes`")
	loss := flag.Float64("loss", 0, "share of RoCEv2 packets dropped, in `percent`")
	keep := flag.Bool("keep", false, "stay up after the end of the input, until an interrupt")
	flag.Parse()
	if err := run(strings.Split(*kernels, ","), *cpus, *mtu, *loss, *keep); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kernels []string, cpus, mtu int, loss float64, keep bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config := lab.Config{CPUs: cpus}
	for _, kernel := range kernels {
		config.Kernels = append(config.Kernels, lab.Kernel(kernel))
	}
	l, err := lab.Start(ctx, config)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.SetMTU(mtu); err != nil {
		return err
	}
	if err := l.SetLoss(loss); err != nil {
		return err
	}
	describe(l)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		if err := command(l, strings.TrimSpace(input.Text())); err != nil {
			fmt.Println(err)
		}
	}
	if keep {
		<-ctx.Done()
	}
	return nil
}

func describe(l *lab.Lab) {
	fmt.Printf("host: %s and %s, in:  ip netns exec %s bash\n", l.HostIPv4, l.HostIPv6, l.HostNS)
	fmt.Printf("wire:                ip netns exec %s tcpdump -i tap1\n", l.WireNS)
	for i, vm := range l.VMs {
		fmt.Printf("%s: %s and %s, commands with @%d\n", vm.Name, vm.IPv4, vm.IPv6, i+1)
	}
}

// commandTimeout bounds a command.
const commandTimeout = time.Hour

// command runs one line of input, or starts it if it ends in &.
func command(l *lab.Lab, line string) error {
	if line == "" {
		return nil
	}
	guest := 1
	if number, rest, found := strings.Cut(line, " "); found && strings.HasPrefix(number, "@") {
		n, err := strconv.Atoi(number[1:])
		if err != nil || n < 1 || n > len(l.VMs) {
			return fmt.Errorf("there is no guest %s: @1 to @%d exist", number, len(l.VMs))
		}
		guest, line = n, rest
	}
	line, background := strings.CutSuffix(line, "&")
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	process, err := l.VMs[guest-1].Start(ctx, "sh", "-c", line)
	if err != nil {
		cancel()
		return err
	}
	if background {
		go func() {
			defer cancel()
			if err := report(process); err != nil {
				fmt.Println(err)
			}
		}()
		return nil
	}
	defer cancel()
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defer context.AfterFunc(interrupted, cancel)()
	return report(process)
}

// report waits for the end of a command and prints its output.
func report(process *lab.Process) error {
	result, err := process.Wait()
	fmt.Print(result.Stdout, result.Stderr)
	if result.ExitCode != 0 {
		fmt.Println("exit code", result.ExitCode)
	}
	return err
}
