package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const iperfPort = "5201"

// tcpHeaders is the size of IPv4 and TCP headers and timestamps, the part of the MTU without payload.
const tcpHeaders = 20 + 20 + 12

// iperf has the used fields of `iperf3 -J`.
type iperf struct {
	Error string
	End   struct {
		Received struct {
			Seconds float64
			Bytes   float64
		} `json:"sum_received"`
		CPU struct {
			Near float64 `json:"host_total"`
			Far  float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
	}
}

// tcp measures one stream of iperf3.
func tcp(congestion string) measure {
	return func(ctx context.Context, w *wire, o *Options) (Result, error) {
		if _, err := exec.LookPath("iperf3"); err != nil {
			return Result{}, &SkipError{"iperf3 is not on the PATH"}
		}
		seconds := math.Ceil(o.Duration.Seconds()) // iperf3 supports whole seconds only
		ctx, cancel := context.WithTimeout(ctx, time.Duration(3*seconds+30)*time.Second)
		defer cancel()
		server := make(chan error, 1)
		go func() {
			_, err := w.far.command(ctx, "iperf3", "-s", "-1", "-p", iperfPort)
			server <- err
		}()
		args := []string{"-J", "-p", iperfPort, "-c", w.far.addr().String(), "-C", congestion, "-t",
			strconv.Itoa(int(seconds))}
		t, err := iperfClient(ctx, w.near, args)
		if err != nil {
			cancel() // the client may not have reached the server
			<-server
			return Result{}, err
		}
		if err := <-server; err != nil {
			return Result{}, fmt.Errorf("iperf3 server: %w", err)
		}
		r := t.End.Received
		return Result{Seconds: r.Seconds, CPU: (t.End.CPU.Near + t.End.CPU.Far) / 100 * r.Seconds, Messages: r.Bytes,
			Bytes: r.Bytes, Packets: r.Bytes / float64(w.MTU-tcpHeaders)}, nil
	}
}

// iperfClient tries until the server listens.
func iperfClient(ctx context.Context, near site, args []string) (iperf, error) {
	for {
		out, err := near.command(ctx, "iperf3", args...)
		var t iperf
		if jsonErr := json.Unmarshal(out, &t); jsonErr != nil {
			return t, errors.Join(err, fmt.Errorf("iperf3 printed %.200q: %w", out, jsonErr))
		}
		switch {
		case strings.Contains(t.Error, "Connection refused") && ctx.Err() == nil:
			time.Sleep(10 * time.Millisecond)
		case strings.Contains(t.Error, "TCP_CONGESTION"):
			return t, &SkipError{t.Error}
		case t.Error != "":
			return t, fmt.Errorf("iperf3: %s", t.Error)
		default:
			return t, err
		}
	}
}
