package demo

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire/layers"
)

// TestCapture: what the demonstration sends is good RoCEv2 in the eyes of others.
// tshark takes it apart without complaint, gopacket reads from every packet what
// package wire does, and a calculation of the ICRC that shares nothing with package
// wire finds it right.
func TestCapture(t *testing.T) {
	for _, drop := range []float64{0, 0.05} {
		path := capture(t, drop)
		if info, err := os.Stat(path); err != nil || info.Size() > 4<<20 {
			t.Errorf("the capture is not of moderate size: %v, %v; want at most 4 MiB", info, err)
		}
		frames := readFrames(t, path)
		if len(frames) < 100 {
			t.Errorf("only %d frames captured, want at least 100", len(frames))
		}
		for i, f := range frames {
			if err := layers.Verify(f); err != nil {
				t.Errorf("frame %d: %v", i+1, err)
			}
			f = f[14:] // behind the Ethernet header
			if got, want := binary.LittleEndian.Uint32(f[len(f)-4:]), icrc(t, f); got != want {
				t.Errorf("frame %d: ICRC %#08x, want %#08x", i+1, got, want)
			}
		}
		checkTshark(t, path, len(frames))
	}
}

// checkTshark fails unless every frame is InfiniBand, whole and unremarkable.
func checkTshark(t *testing.T, path string, frames int) {
	t.Helper()
	fields := []string{"frame.number", "frame.protocols", "infiniband.bth.opcode", "_ws.malformed",
		"_ws.expert.message"}
	args := []string{"-r", path, "-T", "fields"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.Command(require.Command(t, "tshark"), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // nobody's preferences
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != frames {
		t.Errorf("tshark sees %d frames, want %d", len(lines), frames)
	}
	for _, line := range lines {
		f := strings.Split(line, "\t")
		if len(f) != len(fields) || !strings.Contains(f[1], ":udp:infiniband") || f[2] == "" || f[3] != "" ||
			f[4] != "" {
			t.Errorf("tshark on a frame: %q, want %d fields of RoCE, without errors", f, len(fields))
		}
	}
}

// readFrames returns the Ethernet frames of a capture.
func readFrames(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, data)
	}
}

// icrc reckons the invariant CRC of an IPv4 packet (IBTA A17.3.3 and 7.8.1): the
// CRC-32 of Ethernet over 8 bytes of ones, which stand for the LRH, and the packet
// from the IP header to the last byte before the ICRC, with ones for the fields
// that change on the way.
func icrc(t *testing.T, packet []byte) uint32 {
	t.Helper()
	if len(packet) < 20+8+12+4 || packet[0] != 0x45 {
		t.Fatalf("not an IPv4 packet without options: % x, want 44 bytes that begin with 45, or more", packet)
	}
	masked := append([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, packet[:len(packet)-4]...)
	const ip, udp, bth = 8, 8 + 20, 8 + 20 + 8
	for _, i := range []int{
		ip + 1,           // type of service
		ip + 8,           // time to live
		ip + 10, ip + 11, // header checksum
		udp + 6, udp + 7, // checksum
		bth + 4, // FECN, BECN, reserved
	} {
		masked[i] = 0xFF
	}
	crc := ^uint32(0)
	for _, b := range masked {
		for bit := range 8 {
			feedback := crc&1 ^ uint32(b>>bit&1)
			crc >>= 1
			if feedback != 0 {
				crc ^= 0xEDB88320 // the polynomial 0x04C11DB7, lowest bit first
			}
		}
	}
	return ^crc
}

// TestICRCReckoning checks the reckoning against a packet of a ConnectX-4 Lx: the
// CNP of scapy's tests (test/contrib/roce.uts).
func TestICRCReckoning(t *testing.T) {
	packet, err := hex.DecodeString("45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000" +
		"00000000000000000000000000000000" + "82fd002a")
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.AppendUint32(nil, icrc(t, packet)); !bytes.Equal(got, packet[len(packet)-4:]) {
		t.Errorf("ICRC % x, want % x", got, packet[len(packet)-4:])
	}
}
