package host

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// forgery is a SEND for a QP, as its peer could send it, that starts at a PSN.
func forgery(src, dst ib.GID, port uint16, to ib.QPN, psn ib.PSN) []byte {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PKey: ib.DefaultPKey, DestQP: to, PSN: psn, AckReq: true},
		Payload: []byte("forged!!")}
	frame := append(append(p.AppendHeaders(nil), p.Payload...), make([]byte, wire.ICRCLen)...)
	outer := wire.Outer{Src: src, Dst: dst, SrcPort: port, DstPort: link.Port}
	outer.Seal(frame)
	return frame
}

// plainSocket is a UDP socket as any user can have one. Its IPv4 packets carry
// identification 0.
func plainSocket(t *testing.T, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return conn
}

// connectPair makes two QPs of one device that are connected to each other.
func connectPair(t *testing.T, dev roce.Device) (qps [2]ib.QP, cq ib.CQ, mr ib.MR, buf []byte) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	check(err)
	buf = make([]byte, 4096)
	mr, err = pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite})
	check(err)
	cq, err = dev.CreateCQ(ib.CQInit{Entries: 64})
	check(err)
	for i := range qps {
		qps[i], err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq,
			Cap: ib.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 8}})
		check(err)
	}
	gids, err := dev.GIDs(1)
	check(err)
	for i, q := range qps {
		a := ib.QPAttr{Port: 1, PathMTU: ib.MTU1024, DestQPN: qps[1-i].Num(), AH: ib.AHAttr{DGID: gids[0].GID, Port: 1},
			RQPSN: 7, SQPSN: 7,
			Timeout: 19, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 1, MaxDestRdAtomic: 1}
		check(ib.ModifyTo(q, a, ib.StateInit, ib.StateRTR, ib.StateRTS))
	}
	return qps, cq, mr, buf
}

// TestForgedByLocalUser: any user of this host can send a UDP packet with the device's own
// address as its source. One that fits a connection between two QPs of the device is not
// taken for their peer's, whatever its source port, and what the peer sends is.
func TestForgedByLocalUser(t *testing.T) {
	own, beside := linktest.Loopback(), linktest.Loopback()
	dev := openDevice(t, Options{Addrs: []netip.Addr{own}, Link: "udp"})
	qps, cq, mr, buf := connectPair(t, dev)
	if _, err := qps[1].PostRecv([]ib.RecvWR{{ID: 1, SGL: []ib.SGE{{Addr: mr.Addr(), Length: 64,
		LKey: mr.LKey()}}}}); err != nil {
		t.Fatal(err)
	}
	gid := ib.GIDFromAddr(own)
	to := netip.AddrPortFrom(own, link.Port)

	anyPort := plainSocket(t, netip.AddrPortFrom(own, 0))
	port := anyPort.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	if _, err := anyPort.WriteToUDPAddrPort(forgery(gid, gid, port, qps[1].Num(), 7), to); err != nil {
		t.Fatal(err)
	}
	// From the device's own port: a socket at another address of the host may say that it
	// sends from this one (IP_PKTINFO).
	ownPort := plainSocket(t, netip.AddrPortFrom(beside, link.Port))
	info := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: own.As4()})
	if _, _, err := ownPort.WriteMsgUDPAddrPort(forgery(gid, gid, link.Port, qps[1].Num(), 7), info, to); err != nil {
		t.Fatal(err)
	}
	require.Until(t, "two forged packets are counted", func() bool {
		var wc [1]ib.WC
		if n, _ := cq.Poll(wc[:]); n > 0 {
			t.Fatalf("a forged SEND was taken: %+v, %q; want none", wc[0], buf[:8])
		}
		return dev.Stats().Link.RxForged >= 2
	})

	if _, err := qps[0].PostSend([]ib.SendWR{{ID: 2, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline,
		Inline: []byte("the true")}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), require.Patience)
	defer cancel()
	for range 2 {
		if wc, err := ib.WaitOne(ctx, cq); err != nil {
			t.Fatalf("the true message: %v, %+v", err, wc)
		}
	}
}
