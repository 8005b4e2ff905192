package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// tshark runs tshark on a file and returns its output.
func tshark(t *testing.T, file string, args ...string) string {
	t.Helper()
	cmd := exec.Command(require.Command(t, "tshark"), append([]string{"-n", "-r", file}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(out)
}

// merged returns one file with the packets of all capture files of this package
// and of package wire: tshark takes long to start.
func merged(t *testing.T) []byte {
	t.Helper()
	var packets [][]byte
	for _, dir := range []string{"testdata", filepath.Join("..", "..", "..", "wire", "testdata")} {
		files, err := filepath.Glob(filepath.Join(dir, "*.pcap"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if filepath.Base(path) == "loss.pcap" {
				continue // packets that were not captured whole lose their length here
			}
			packets = append(packets, packetsOf(t, path)...)
		}
	}
	return pcap(capfile.Ethernet, packets...)
}

// packetsOf returns the packets of an Ethernet capture.
func packetsOf(t *testing.T, path string) (packets [][]byte) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := capfile.NewReader(path, file)
	for err == nil {
		var p capfile.Packet
		if err = in.Next(&p); err == nil {
			packets = append(packets, bytes.Clone(p.Data))
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return packets
}

// TestTshark: tshark sees the same packets: as many of each opcode, each with the
// same queue pair and PSN.
func TestTshark(t *testing.T) {
	file := merged(t)
	path := filepath.Join(t.TempDir(), "all.pcap")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	opcodes := map[wire.Opcode]int{}
	for line := range strings.Lines(tshark(t, path, "-T", "fields", "-e", "infiniband.bth.opcode", "-e",
		"infiniband.bth.destqp", "-e", "infiniband.bth.psn")) {
		op, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseUint(op, 0, 8)
		if err != nil {
			t.Fatalf("tshark printed %q", line)
		}
		opcodes[wire.Opcode(n)]++
		want = append(want, rest)
	}
	text, sum := run(t, file, Options{JSON: true})
	if diff := cmp.Diff(opcodes, sum.Opcodes); diff != "" {
		t.Errorf("packets by opcode (-tshark +decode):\n%s", diff)
	}
	for line := range strings.Lines(text) {
		var p PacketLine
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.PSN != nil {
			got = append(got, fmt.Sprintf("%#06x\t%d", p.DestQP, *p.PSN))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("queue pairs and PSNs (-tshark +decode):\n%s", diff)
	}
}

// TestTsharkPcapng: a file that tshark turned into pcapng reads the same.
func TestTsharkPcapng(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rping.pcapng")
	tshark(t, filepath.Join("testdata", "rping.pcap"), "-F", "pcapng", "-w", path)
	ng, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(ng, []byte("\n\r\r\n")) {
		t.Fatalf("tshark did not write pcapng: % x", ng[:4])
	}
	opts := Options{Name: "rping", Verbose: true}
	want, _ := run(t, testFile(t, "rping.pcap"), opts)
	got, _ := run(t, ng, opts)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pcapng differs (-pcap +pcapng):\n%s", diff)
	}
}
