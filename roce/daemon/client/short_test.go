package client

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/server"
)

// sender is a tenant that posts from memory of the process, and notes which requests have their payload inline.
type sender struct {
	*tenant
	own    []byte
	region ib.MR
	inline bool // of the last request
}

func newSender(t *testing.T, d *daemon) (*sender, *tenant) {
	a, b := &sender{tenant: d.newTenant(t, 4096), own: make([]byte, 4096)}, d.newTenant(t, 4096)
	for i := range a.own {
		a.own[i] = byte(i*7 + i/251)
	}
	copy(a.buf, a.own)
	var err error
	a.region, err = a.pd.RegMR(ib.MRInit{Buf: a.own, Access: ib.LocalWrite, IOVA: 0x100000})
	a.must(err)
	a.qp, err = a.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: a.cq, RecvCQ: a.cq,
		Cap: ib.QPCap{MaxSendWR: 16, MaxSendSGE: 4}})
	a.must(err)
	q := a.qp.(*queuePair)
	q.front.Rewrite = func(wr *ib.SendWR) *ib.SendWR {
		wr = q.shorts.inlined(wr)
		a.inline = wr.Flags&ib.SendInline != 0
		return wr
	}
	connect(a.tenant, b)
	return a, b
}

// outcome posts a request, and returns its status and the bytes that the peer has got.
func (a *sender) outcome(b *tenant, wr ib.SendWR) (ib.WCStatus, []byte) {
	a.Helper()
	clear(b.buf)
	wr.Flags |= ib.SendSignaled
	wr.RemoteAddr, wr.RKey = b.mr.Addr(), b.mr.RKey()
	if wr.Opcode == ib.WRSend || wr.Opcode == ib.WRSendImm || wr.Opcode == ib.WRWriteImm {
		_, err := b.qp.PostRecv([]ib.RecvWR{{SGL: b.sge()}})
		a.must(err)
	}
	_, err := a.qp.PostSend([]ib.SendWR{wr})
	a.must(err)
	return a.wait().Status, bytes.Clone(b.buf)
}

// TestShort: short payloads of process memory travel in the request, and nobody can tell from what becomes of them.
func TestShort(t *testing.T) {
	d := newDaemon(t, server.Options{OwnProcesses: true})
	type pieces [][2]int // offset and length
	for _, row := range []struct {
		name   string
		op     ib.WROpcode
		flags  ib.SendFlags
		pieces pieces
		inline bool
	}{
		{"WRITE", ib.WRWrite, 0, pieces{{100, 8}}, true},
		{"WRITE with immediate", ib.WRWriteImm, 0, pieces{{1, 1}}, true},
		{"SEND", ib.WRSend, 0, pieces{{4, 64}}, true},
		{"SEND with immediate", ib.WRSendImm, 0, pieces{{1000, 3}, {0, 0}, {2000, 5}, {7, 1}}, true},
		{"the end of the region", ib.WRWrite, 0, pieces{{4095, 1}}, true},
		{"no room", ib.WRWrite, 0, pieces{{100, 65}}, false},
		{"no room for both", ib.WRWrite, 0, pieces{{100, 60}, {0, 5}}, false},
		{"empty", ib.WRSend, 0, pieces{{100, 0}}, false},
		{"no pieces", ib.WRSend, 0, nil, false},
		{"fence", ib.WRSend, ib.SendFence, pieces{{100, 8}}, false},
		{"READ", ib.WRRead, 0, pieces{{100, 8}}, false},
		{"beyond the end", ib.WRWrite, 0, pieces{{4090, 8}}, false},
		{"behind the end", ib.WRWrite, 0, pieces{{4097, 1}}, false},
		{"before the begin", ib.WRWrite, 0, pieces{{-1, 8}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b := newSender(t, d)
			request := func(mr ib.MR) ib.SendWR {
				wr := ib.SendWR{Opcode: row.op, Flags: row.flags}
				for _, p := range row.pieces {
					e := ib.SGE{Addr: mr.Addr() + uint64(p[0]), Length: uint32(p[1]), LKey: mr.LKey()}
					if p[1] == 0 {
						e.LKey = 0 // nobody's
					}
					wr.SGL = append(wr.SGL, e)
				}
				return wr
			}
			got, gotBytes := a.outcome(b, request(a.region))
			if a.inline != row.inline {
				t.Errorf("got a payload that is inline: %v, want %v", a.inline, row.inline)
			}
			a, b = newSender(t, d)
			want, wantBytes := a.outcome(b, request(a.mr)) // memory that the daemon maps
			if a.inline {
				t.Error("the payload is inline although the daemon maps the memory")
			}
			if got != want || !bytes.Equal(gotBytes, wantBytes) {
				t.Errorf("got status %v and %x, want those of memory that the daemon maps, %v and %x", got,
					gotBytes[:80], want, wantBytes[:80])
			}
		})
	}
}

// TestShortKeys: a payload is copied under a key only while that is the key of process memory in the QP's PD.
func TestShortKeys(t *testing.T) {
	d := newDaemon(t, server.Options{OwnProcesses: true})
	other := func(a *sender) ib.PD {
		pd, err := a.dev.AllocPD()
		a.must(err)
		return pd
	}
	move := func(a *sender, pd ib.PD) {
		a.must(a.region.Rereg(ib.ReregPD, pd, ib.MRInit{}))
	}
	for _, row := range []struct {
		name   string
		change func(a *sender)
		status ib.WCStatus
		inline bool
	}{
		{"as registered", func(*sender) {}, ib.WCSuccess, true},
		{"closed", func(a *sender) { a.must(a.region.Close()) }, ib.WCLocProtErr, false},
		{"another PD", func(a *sender) { move(a, other(a)) }, ib.WCLocProtErr, false},
		{"the PD again", func(a *sender) { move(a, other(a)); move(a, a.pd) }, ib.WCSuccess, true},
		{"now mapped", func(a *sender) {
			a.must(a.region.Rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: a.buf}))
		}, ib.WCSuccess, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b := newSender(t, d)
			send := ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{a.region.SGE(0, 8)}}
			if status, _ := a.outcome(b, send); status != ib.WCSuccess {
				t.Fatal(status)
			}
			row.change(a)
			e := ib.SGE{Addr: a.region.Addr(), Length: 8, LKey: a.region.LKey()}
			status, got := a.outcome(b, ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{e}})
			if status != row.status || a.inline != row.inline {
				t.Errorf("got status %v, inline %v, want %v and %v", status, a.inline, row.status, row.inline)
			}
			if status == ib.WCSuccess && !bytes.Equal(got[:8], a.own[:8]) {
				t.Errorf("got %x at the peer, want %x", got[:8], a.own[:8])
			}
		})
	}
}

// TestShortAllocs: to copy a payload into a request allocates nothing.
func TestShortAllocs(t *testing.T) {
	s := shorts{regions: &regions{}, pd: 1, room: 64, bytes: make([]byte, 0, 64)}
	s.regions.add(0x100, &region{pd: 1, buf: make([]byte, 100)})
	wr := ib.SendWR{Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: 10, Length: 8, LKey: 0x100}}}
	if n := testing.AllocsPerRun(100, func() { s.inlined(&wr) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
