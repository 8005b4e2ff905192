package rsocket

import (
	"fmt"
	"io"
	"net"
	"testing"
)

// streams are the pairs to compare: ours, and TCP of the same machine.
func streams(b *testing.B, f func(b *testing.B, client, server net.Conn)) {
	for _, o := range []struct {
		name string
		o    Options
	}{
		{"rsocket", Options{}},
		{"rsocket 1MiB", Options{ReceiveBuffer: 1 << 20, SendBuffer: 1 << 20}},
	} {
		b.Run(o.name, func(b *testing.B) {
			p := newPair(b, overUDP, o.o)
			f(b, p.a, p.b)
		})
	}
	b.Run("tcp", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		defer server.Close()
		f(b, client, server)
	})
}

// BenchmarkThroughput writes in one direction.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			streams(b, func(b *testing.B, client, server net.Conn) {
				b.SetBytes(int64(size))
				go io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{server}, make([]byte, size))
				buf := make([]byte, size)
				for b.Loop() {
					if _, err := client.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkPingPong sends 64 bytes there and back.
func BenchmarkPingPong(b *testing.B) {
	streams(b, func(b *testing.B, client, server net.Conn) {
		go func() {
			buf := make([]byte, 64)
			for {
				if _, err := io.ReadFull(server, buf); err != nil {
					return
				}
				if _, err := server.Write(buf); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, 64)
		for b.Loop() {
			if _, err := client.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(client, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
