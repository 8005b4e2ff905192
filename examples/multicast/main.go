// Multicast sends datagrams to all hosts that have joined a group.
//
//	go run ./examples/multicast -addr 192.0.2.1 -group 239.1.2.3                      # on as many hosts as there are
//	go run ./examples/multicast -addr 192.0.2.2 -group 239.1.2.3 "to whom it concerns"  # on another one
//
// It shows the unreliable datagram service: a queue pair without a peer, the Q_Key that a datagram must carry, joining
// a group (rdmacm.CM.Join, which tells the network by IGMP or MLD), the address handle that says where a datagram goes,
// and the 40 bytes of a received datagram that precede its payload. Datagrams may get lost, and nobody is told.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rdmacm"
)

const (
	maxLen  = 512 // what a request can carry itself (DeviceAttr.MaxInline)
	buffers = 16
)

const usage = "usage: multicast -addr ADDR [-group ADDR] [TEXT]\n"

func main() {
	addr := flag.String("addr", "", "address of this host")
	group := flag.String("group", "239.1.2.3", "multicast group")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *addr == "" {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *group, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, group string, messages []string) error {
	at, err := netip.ParseAddr(addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	to, err := netip.ParseAddr(group)
	if err != nil {
		return fmt.Errorf("-group: %w", err)
	}
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{at}})
	if err != nil {
		return err
	}
	defer dev.Close()
	m, err := join(ctx, dev, to)
	if err != nil {
		return err
	}
	defer m.close()
	if len(messages) == 0 {
		return m.receive(ctx, func(from ib.QPN, text string) { fmt.Printf("QP %#x: %s\n", from, text) })
	}
	for _, text := range messages {
		if err := m.send(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// member is a queue pair that has joined a group.
type member struct {
	cm             *rdmacm.CM
	qp             ib.QP
	sendCQ, recvCQ ib.CQ
	buf            []byte
	mr             ib.MR
	group          *rdmacm.Membership
	ah             ib.AH // where datagrams to the group go
}

func join(ctx context.Context, dev ib.Device, group netip.Addr) (m *member, err error) {
	m = &member{buf: ib.Alloc(dev, buffers*(ib.GRHLen+maxLen))}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	if m.sendCQ, err = dev.CreateCQ(ib.CQInit{Entries: 1}); err != nil {
		return nil, err
	}
	if m.recvCQ, err = dev.CreateCQ(ib.CQInit{Entries: buffers}); err != nil {
		return nil, err
	}
	if m.mr, err = pd.RegMR(ib.MRInit{Buf: m.buf, Access: ib.LocalWrite}); err != nil {
		return nil, err
	}
	if m.qp, err = pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: m.sendCQ, RecvCQ: m.recvCQ,
		Cap: ib.QPCap{MaxSendWR: 1, MaxInline: maxLen, MaxRecvWR: buffers, MaxRecvSGE: 1}}); err != nil {
		return nil, err
	}
	if err = ib.ModifyTo(m.qp, ib.QPAttr{Port: 1, QKey: rdmacm.DefaultQKey}, ib.StateInit, ib.StateRTR,
		ib.StateRTS); err != nil {
		return nil, err
	}
	for id := range uint64(buffers) {
		if err = m.post(id); err != nil {
			return nil, err
		}
	}
	if m.cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		return nil, err
	}
	if m.group, err = m.cm.Join(ctx, group, m.qp); err != nil {
		return nil, err
	}
	m.ah, err = pd.CreateAH(m.group.AH)
	return m, err
}

func (m *member) close() { _ = m.cm.Close() }

// post makes room for one datagram. The first ib.GRHLen bytes are for its route header.
func (m *member) post(id uint64) error {
	const n = ib.GRHLen + maxLen
	_, err := m.qp.PostRecv([]ib.RecvWR{{ID: id, SGL: []ib.SGE{m.mr.SGE(int(id)*n, n)}}})
	return err
}

// send sends a datagram to the group. It has left when send returns; who gets it is not known.
func (m *member) send(ctx context.Context, text string) error {
	wr := ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, Inline: []byte(text),
		AH: m.ah.Num(), RemoteQPN: m.group.QPN, RemoteQKey: m.group.QKey}
	if _, err := m.qp.PostSend([]ib.SendWR{wr}); err != nil {
		return err
	}
	_, err := ib.WaitOne(ctx, m.sendCQ)
	return err
}

// receive calls got for each datagram, with the sender's queue pair, until ctx ends.
func (m *member) receive(ctx context.Context, got func(from ib.QPN, text string)) error {
	for wc, err := range ib.Completions(ctx, m.recvCQ) {
		if err != nil {
			return err
		}
		datagram := m.buf[wc.ID*(ib.GRHLen+maxLen):][:wc.ByteLen]
		got(wc.SrcQP, string(datagram[ib.GRHLen:]))
		if err := m.post(wc.ID); err != nil {
			return err
		}
	}
	return nil
}
