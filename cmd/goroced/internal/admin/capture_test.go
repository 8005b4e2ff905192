package admin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// captureFile returns a pcapng file of two packets, of which three more were lost.
func captureFile(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for lost := range uint64(4) {
		if lost%2 == 1 {
			err = w.WritePacket(gopacket.CaptureInfo{CaptureLength: 61, Length: 61}, make([]byte, 61))
		}
		if err == nil {
			err = w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: 9, PacketsDropped: lost})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// copyBlocks copies a stream as Client.Capture does.
func copyBlocks(stream []byte, most uint64, w io.Writer) (CaptureResult, error) {
	b := blocks{r: bufio.NewReader(bytes.NewReader(stream)), w: bufio.NewWriter(w), most: most}
	err := b.copy()
	if err == nil {
		err = b.w.Flush()
	}
	return b.result(), err
}

// Wherever a stream is cut, the file ends with a whole block.
func TestCutStream(t *testing.T) {
	whole := captureFile(t)
	for n := range whole {
		var file bytes.Buffer
		got, err := copyBlocks(whole[:n], 0, &file)
		if err != nil || !bytes.HasPrefix(whole, file.Bytes()) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		var again bytes.Buffer
		if same, err := copyBlocks(file.Bytes(), 0, &again); err != nil || same != got ||
			!bytes.Equal(file.Bytes(), again.Bytes()) {
			t.Errorf("cut at %d: the file ends with half a block, want %+v", n, got)
		}
	}
	var file bytes.Buffer
	if got, err := copyBlocks(whole, 0, &file); err != nil || got != (CaptureResult{2, 3}) ||
		!bytes.Equal(file.Bytes(), whole) {
		t.Errorf("whole: %+v, %v; want %+v, and all of it", got, err, CaptureResult{2, 3})
	}
	if got, err := copyBlocks(whole, 1, &file); err != nil || got.Packets != 1 {
		t.Errorf("one packet: %+v, %v; want 1 packet", got, err)
	}
}

// A full disk is an error, and so is what is no capture.
func TestBadStream(t *testing.T) {
	if _, err := copyBlocks(bytes.Repeat([]byte("no pcapng "), 9), 0, io.Discard); err == nil ||
		errors.Is(err, errCaptureFile) {
		t.Errorf("garbage: error %v, want another than %v", err, errCaptureFile)
	}
	r, w := io.Pipe()
	r.Close()
	b := blocks{r: bufio.NewReader(bytes.NewReader(captureFile(t))), w: bufio.NewWriter(w)}
	if err := b.copy(); !errors.Is(err, errCaptureFile) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("closed pipe: error %v, want %v and %v", err, errCaptureFile, io.ErrClosedPipe)
	}
}

// Nothing that a daemon sends makes the client panic or take more than a block's memory.
func FuzzStream(f *testing.F) {
	f.Add(captureFile(f))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var file bytes.Buffer
		_, _ = copyBlocks(stream, 0, &file)
		if !bytes.HasPrefix(stream, file.Bytes()) {
			t.Error("the file holds what was not sent")
		}
	})
}
