package explain

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// multicast shows three devices on a network in memory.
var multicast = lesson{
	name:  "multicast",
	title: "A datagram to a group reaches every QP that is attached to it",
	group: "other services",
	rule:  "IBTA",
	why: []string{
		"A multicast group is an IP multicast address. UD queue pairs attach to it (ibv_attach_mcast); then their " +
			"host joins the group on the network, by IGMP or MLD, and gets what is sent to it. A sender need not be " +
			"a member: it sends a datagram to the group's address and to QP 0xffffff, with the Q_Key of the " +
			"receivers. Each host gives a copy to every QP of the group whose Q_Key fits, those of the sender's " +
			"host, too. As with all datagrams, nobody acknowledges: a QP without a posted receive gets nothing, and " +
			"nobody knows.",
	},
	show: showMulticast,
}

// node is a device with a datagram QP.
type node struct {
	dev roce.Device
	tap *wrap.Capturer
	pd  ib.PD
	cq  ib.CQ
	mr  ib.MR
	qp  ib.QP
}

const groupQKey = 0x1234

// openNode opens a device with address 192.0.2.N on a network.
func openNode(network *mem.Network, n byte, capture *bytes.Buffer) (*node, error) {
	gid := cmGID(n - 1)
	tap, err := wrap.Pcap(network.Open([]ib.GID{gid}, mem.Options{}), capture, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	o := &node{tap: tap}
	if o.dev, err = roce.Open(wrap.Seal(tap), roce.Options{Manual: true, Seed: uint64(n)}); err != nil {
		return nil, err
	}
	if err = o.equip(); err != nil {
		return nil, errors.Join(err, o.dev.Close())
	}
	return o, nil
}

// equip makes a UD QP in state RTS, with one receive posted.
func (o *node) equip() (err error) {
	if o.pd, err = o.dev.AllocPD(); err != nil {
		return err
	}
	if o.mr, err = o.pd.RegMR(ib.MRInit{Buf: make([]byte, 128), Access: ib.LocalWrite}); err != nil {
		return err
	}
	if o.cq, err = o.dev.CreateCQ(ib.CQInit{Entries: 4}); err != nil {
		return err
	}
	if o.qp, err = o.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: o.cq, RecvCQ: o.cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return err
	}
	if err = ib.ModifyTo(o.qp, ib.QPAttr{Port: 1, QKey: groupQKey}, ib.StateInit, ib.StateRTR,
		ib.StateRTS); err != nil {
		return err
	}
	_, err = o.qp.PostRecv([]ib.RecvWR{{SGL: o.sge(128)}})
	return err
}

func (o *node) sge(n int) []ib.SGE {
	return []ib.SGE{{Addr: o.mr.Addr(), Length: uint32(n), LKey: o.mr.LKey()}}
}

func showMulticast(p *page) (err error) {
	group := netip.MustParseAddr("239.1.2.3")
	network := mem.NewNetwork()
	var nodes []*node
	var sent bytes.Buffer
	defer func() {
		for _, o := range nodes {
			if cerr := o.dev.Close(); err == nil {
				err = cerr
			}
		}
	}()
	for n := byte(1); n <= 3; n++ {
		capture := &bytes.Buffer{}
		if n == 1 {
			capture = &sent
		}
		o, err := openNode(network, n, capture)
		if err != nil {
			return err
		}
		nodes = append(nodes, o)
	}
	for _, o := range nodes[:2] {
		if err := o.qp.AttachMulticast(ib.GIDFromAddr(group)); err != nil {
			return err
		}
	}
	p.paragraph(fmt.Sprintf("Three hosts, 192.0.2.1 to 192.0.2.3, have a UD QP each, with one receive posted. Those "+
		"of the first two are attached to %v. The first sends 64 bytes to the group, which leave as this packet:",
		group))
	if err := nodes[0].sendTo(group); err != nil {
		return err
	}
	for now := ib.Instant(0); now < ib.Instant(time.Millisecond); now += ib.Instant(10 * time.Microsecond) {
		for nodes[0].dev.Step(now) || nodes[1].dev.Step(now) || nodes[2].dev.Step(now) {
		}
	}
	return showMembers(p, nodes, &sent)
}

// sendTo posts a datagram to the group.
func (o *node) sendTo(group netip.Addr) error {
	ah, err := o.pd.CreateAH(ib.AHAttr{DGID: ib.GIDFromAddr(group), Port: 1})
	if err != nil {
		return err
	}
	_, err = o.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: o.sge(64), AH: ah.Num(),
		RemoteQPN: ib.QPNMulticast, RemoteQKey: groupQKey}})
	return err
}

// showMembers writes the packet, and what each host has got.
func showMembers(p *page, nodes []*node, sent *bytes.Buffer) error {
	if err := nodes[0].tap.Wait(0, false); err != nil { // brings the file up to date
		return err
	}
	frame, err := decode.First(sent)
	if err != nil {
		return err
	}
	if err := decode.Fields(p.out, p.term, frame); err != nil {
		return err
	}
	fmt.Fprintln(p.out)
	p.paragraph("The MAC address is made of the last 23 bits of the group's, so switches know it, too. The " +
		"completions:")
	for i, o := range nodes {
		host := fmt.Sprintf("  192.0.2.%d  ", i+1)
		var wcs [4]ib.WC
		n, err := o.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			text := fmt.Sprintf("%v: %v", wc.Opcode, wc.Status)
			if wc.Opcode == ib.WCRecv {
				text += fmt.Sprintf(", %d bytes with the GRH, from QP %#x", wc.ByteLen, uint32(wc.SrcQP))
			}
			p.line(host, text)
		}
		if n == 0 {
			p.line(host, "nothing: its QP is not attached")
		}
	}
	return nil
}
