package linktest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/tests/require"
)

// Capture is a running tcpdump.
type Capture struct {
	File string // pcap, complete once Packets has returned
	want int
	cmd  *exec.Cmd
}

// Capture captures the next n RoCEv2 packets that the namespace's interface receives. It returns when the capture has
// begun.
func (n *Namespace) Capture(t testing.TB, packets int) *Capture {
	t.Helper()
	path := require.Command(t, "tcpdump")
	c := &Capture{File: filepath.Join(t.TempDir(), "capture.pcap"), want: packets}
	// room for 400 packets
	c.cmd = exec.Command(path, "-i", n.IfName, "-Q", "in", "--immediate-mode", "-U", "-s", "70000", "-B", "32768",
		"-c", fmt.Sprint(packets), "-w", c.File, "udp dst port 4791")
	stderr, err := c.cmd.StderrPipe()
	if err == nil {
		err = n.Do(c.cmd.Start)
	}
	if err != nil {
		t.Fatalf("start tcpdump: %v", err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening on") {
			return c
		}
	}
	t.Fatalf("tcpdump does not listen")
	return nil
}

// Packets waits until all packets are captured and returns them, from the Ethernet header on.
func (c *Capture) Packets(t testing.TB) [][]byte {
	t.Helper()
	stop := time.AfterFunc(patience, func() { _ = c.cmd.Process.Signal(os.Interrupt) })
	defer stop.Stop()
	_ = c.cmd.Wait()
	b, err := os.ReadFile(c.File)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var packets [][]byte
	for {
		p, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		packets = append(packets, p)
	}
	if len(packets) != c.want {
		t.Fatalf("captured %d packets, want %d", len(packets), c.want)
	}
	return packets
}

// Tshark fails unless tshark decodes want RoCEv2 packets in a capture file without complaints. Tshark does not check
// ICRCs.
func Tshark(t testing.TB, file string, want int) {
	t.Helper()
	const severityError = "8388608"
	// RoCEv2 has no UDP checksum, about which tshark would complain over IPv6.
	cmd := exec.Command(require.Command(t, "tshark"), "-r", file, "-T", "fields", "-o",
		"udp.ignore_ipv6_zero_checksum:TRUE", "-e", "frame.number", "-e", "infiniband.bth.opcode", "-e",
		"_ws.expert.severity", "-e", "_ws.expert.message")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if fields[1] != "" {
			n++
		}
		if strings.Contains(fields[2], severityError) {
			t.Errorf("%s, packet %s: tshark says %q", file, fields[0], fields[3])
		}
	}
	if n != want {
		t.Errorf("tshark finds %d RoCEv2 packets in %s, want %d", n, file, want)
	}
}
