// Filecopy copies a file to another host, with progress.
//
//	go run ./examples/filecopy -listen 127.0.0.1:7471 -to copy.bin
//	go run ./examples/filecopy -from 127.0.0.2 127.0.0.1:7471 original.bin
//
// It shows private data in both directions: the client says how long the file is, and the server answers with memory of
// just that length (Listener.Request, Request.Accept). The data goes there by large WRITEs, of which several are under
// way at a time. A checksum behind the data is written last, which tells the server that all is there: WRITEs of one
// connection take effect in their order. Ctrl-C ends both ends cleanly.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
)

const (
	maxFile = 1 << 30
	piece   = 1 << 20 // bytes between two reports of progress
	sumLen  = 8       // behind the data: its CRC-32, and a bit that tells it from memory that nobody has written
	sumSet  = 1 << 32
)

const usage = "usage: filecopy -listen ADDR:PORT [-to FILE]\n" +
	"       filecopy [-from ADDR] ADDR:PORT FILE\n"

func main() {
	listen := flag.String("listen", "", "receive a file at this address and port")
	to := flag.String("to", "received", "file to write")
	from := flag.String("from", "127.0.0.2", "address of this host to connect from")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *listen == "" && flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *to, *from, flag.Arg(0), flag.Arg(1)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, to, from, addr, name string) error {
	if listen == "" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return send(ctx, from, addr, f, func(done, size int64) { fmt.Printf("\r%d of %d MiB", done>>20, size>>20) })
	}
	data, err := receive(ctx, listen, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// open opens a device on an address of this host, and its connection manager.
func open(addr string) (cm *rdmacm.CM, closeAll func(), err error) {
	at, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, nil, err
	}
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{at}})
	if err != nil {
		return nil, nil, err
	}
	if cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		dev.Close()
		return nil, nil, err
	}
	return cm, func() { cm.Close(); dev.Close() }, nil
}

// receive takes one file. ready, if not nil, is called with the address when a client may connect.
func receive(ctx context.Context, listen string, ready func(addr string)) ([]byte, error) {
	at, err := netip.ParseAddrPort(listen)
	if err != nil {
		return nil, err
	}
	cm, closeAll, err := open(at.Addr().String())
	if err != nil {
		return nil, err
	}
	defer closeAll()
	l, err := cm.Listen(ctx, listen, rdmacm.ListenConfig{})
	if err != nil {
		return nil, err
	}
	if ready != nil {
		ready(l.Addr().String())
	}
	r, err := l.Request(ctx)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint64(r.PrivateData())
	if size > maxFile {
		err := fmt.Errorf("a file of %d bytes; at most %d", size, int64(maxFile))
		return nil, errors.Join(err, r.Reject([]byte("too long")))
	}
	pd, err := cm.Device().AllocPD()
	if err != nil {
		return nil, err
	}
	buf := ib.Alloc(cm.Device(), int(size)+sumLen)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	if err != nil {
		return nil, err
	}
	offer, _ := ib.RemoteBufferOf(mr).MarshalBinary()
	conn, err := r.Accept(ctx, rdmacm.Config{PD: pd, Access: ib.RemoteWrite, PrivateData: offer})
	if err != nil {
		return nil, err
	}
	select {
	case <-conn.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	data := buf[:size]
	if sum := binary.BigEndian.Uint64(buf[size:]); sum != sumSet|uint64(crc32.ChecksumIEEE(data)) {
		return nil, fmt.Errorf("the file is not whole: %w", conn.Err())
	}
	return data, nil
}

// send copies a file. progress is called with the bytes that have arrived.
func send(ctx context.Context, from, addr string, f *os.File, progress func(done, size int64)) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	cm, closeAll, err := open(from)
	if err != nil {
		return err
	}
	defer closeAll()
	length := binary.BigEndian.AppendUint64(nil, uint64(info.Size()))
	conn, err := cm.Dial(ctx, addr, rdmacm.Config{PrivateData: length})
	if err != nil {
		return err // says "too long" if the server has said so
	}
	defer conn.Close()
	var offer ib.RemoteBuffer
	if err := offer.UnmarshalBinary(conn.PrivateData()); err != nil {
		return err
	}
	mem, err := conn.Memory(offer)
	if err != nil {
		return err
	}
	sum, done, buf := crc32.NewIEEE(), int64(0), make([]byte, piece)
	for done < info.Size() {
		n, err := io.ReadFull(f, buf[:min(piece, info.Size()-done)])
		if err != nil {
			return err
		}
		if _, err := mem.WriteAt(ctx, buf[:n], done); err != nil {
			return err
		}
		sum.Write(buf[:n])
		done += int64(n)
		progress(done, info.Size())
	}
	_, err = mem.WriteAt(ctx, binary.BigEndian.AppendUint64(nil, sumSet|uint64(sum.Sum32())), done)
	return err
}
