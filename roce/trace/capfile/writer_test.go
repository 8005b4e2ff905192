package capfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/ib"
)

// written returns a file with packets.
func written(t testing.TB, packets []Packet) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, Ethernet, "eth0", "a test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range packets {
		if err := w.Write(&packets[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Statistics(Received, packets[0].At, 9, 2); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestWriter: what was written is read, by this package and by gopacket: every link type and direction.
func TestWriter(t *testing.T) {
	packets := append([]Packet(nil), sample...)
	packets[0].Dir, packets[1].Dir = Received, Sent
	packets = append(packets, Packet{Num: 4, At: 5, Link: SLL2, Data: []byte("four"), WireLen: 4, Dir: Sent},
		Packet{Num: 5, At: 6, Link: Ethernet, Data: []byte("five5"), WireLen: 5})
	file := written(t, packets)
	got, err := all(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(packets, got); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}

	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"eth0 received", "eth0 sent", "eth0", "eth0 sent", "eth0"} {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			t.Fatalf("packet %d: %v", i+1, err)
		}
		face, err := r.Interface(ci.InterfaceIndex)
		p := &packets[i]
		if err != nil || face.Name != want || uint8(face.LinkType) != uint8(p.Link) || !bytes.Equal(data, p.Data) ||
			ci.Timestamp.UnixNano() != int64(p.At) || ci.Length != p.WireLen {
			t.Errorf("packet %d is %q on %q, %+v; want %+v on %q", i+1, data, face.Name, ci, p, want)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("after the last packet: %v, want io.EOF", err)
	}
	for id, want := range []uint64{0, 9} {
		face, err := r.Interface(id)
		if err != nil || face.Statistics.PacketsReceived != want || id == 1 && face.Statistics.PacketsDropped != 2 {
			t.Errorf("statistics of %q: %+v, %v; want %d packets", face.Name, face.Statistics, err, want)
		}
	}
}

var errFull = errors.New("disk full")

// disk has room for some bytes.
type disk struct{ room int }

func (d *disk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriterErrors: a full disk is reported, and what a Reader would refuse is refused.
func TestWriterErrors(t *testing.T) {
	if _, err := NewWriter(&disk{}, Ethernet, "eth0", ""); !errors.Is(err, errFull) {
		t.Errorf("no room for the start: %v, want %v", err, errFull)
	}
	var attr *ib.AttrError
	if _, err := NewWriter(io.Discard, Ethernet, strings.Repeat("x", maxName+1), ""); !errors.As(err, &attr) ||
		attr.Attr != "name" {
		t.Errorf("long name: %v, want an *ib.AttrError for name", err)
	}
	w, err := NewWriter(&disk{room: 300}, Ethernet, "eth0", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&Packet{Data: make([]byte, MaxCapture+1)}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("long packet: %v, want %v", err, ib.ErrInvalid)
	}
	err = w.Write(&Packet{Data: make([]byte, MaxCapture)})
	if flushed := w.Flush(); !errors.Is(errors.Join(err, flushed), errFull) {
		t.Errorf("no room for a packet: %v, %v; want %v", err, flushed, errFull)
	}
}
