package capfile_test

import (
	"bytes"
	"fmt"
	"io"

	"github.com/goroce/goroce/roce/trace/capfile"
)

// A capture file is written, then read.
func Example() {
	var file bytes.Buffer
	w, err := capfile.NewWriter(&file, capfile.Ethernet, "eth0", "two packets")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range []capfile.Packet{
		{At: 1_700_000_000_000_000_000, Link: capfile.Ethernet, Data: make([]byte, 64), Dir: capfile.Sent},
		{At: 1_700_000_000_000_012_000, Link: capfile.Ethernet, Data: make([]byte, 60), WireLen: 1500,
			Dir: capfile.Received},
	} {
		if err := w.Write(&p); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := w.Flush(); err != nil {
		fmt.Println(err)
		return
	}

	r, err := capfile.NewReader("example.pcapng", &file)
	for err == nil {
		var p capfile.Packet
		if err = r.Next(&p); err == nil {
			fmt.Printf("#%d %v: %v, %d of %d bytes\n", p.Num, p.Link, p.Dir, len(p.Data), p.WireLen)
		}
	}
	if err != io.EOF {
		fmt.Println(err)
	}
	// Output:
	// #1 ETHERNET: sent, 64 of 64 bytes
	// #2 ETHERNET: received, 60 of 1500 bytes
}
