package layers

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Verify decodes an Ethernet frame with this package and with package wire, which share no code. It returns an error,
// which says what differs, unless both decode the same values and find the ICRC correct.
func Verify(frame []byte) error {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if e := packet.ErrorLayer(); e != nil {
		return fmt.Errorf("gopacket: %w", e.Error())
	}
	if packet.Layer(LayerTypeBTH) == nil {
		return errors.New("gopacket: no BTH")
	}
	var f wire.Frame
	var want wire.Packet
	if err := f.Decode(frame); err != nil {
		return err
	}
	if err := want.Decode(f.Transport[:len(f.Transport)-wire.ICRCLen]); err != nil {
		return err
	}
	got := toWire(packet)
	same := bytes.Equal(got.Payload, want.Payload)
	got.Payload, want.Payload = nil, nil
	if !same || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("package wire reads %+v, package layers %+v; same payload: %v", want, got, same)
	}
	byLayers, err := CheckICRC(packet)
	if byWire := f.Outer.Check(f.Transport); !byLayers || !byWire {
		return fmt.Errorf("ICRC right for package wire: %v; for package layers: %v, %w", byWire, byLayers, err)
	}
	return nil
}

// toWire converts the layers of a packet to the form of package wire.
func toWire(packet gopacket.Packet) (p wire.Packet) {
	for _, l := range packet.Layers() {
		switch l := l.(type) {
		case *BTH:
			p.BTH = wire.BTH{Opcode: l.Opcode, SE: l.SE, MigReq: l.MigReq, PadCnt: l.PadCnt, TVer: l.TVer, PKey: l.PKey,
				FECN: l.FECN, BECN: l.BECN, Resv6: l.Resv6, DestQP: ib.QPN(l.DestQP), AckReq: l.AckReq, Resv7: l.Resv7,
				PSN: ib.PSN(l.PSN)}
		case *XRCETH:
			p.XRCSRQ, p.XRCResv = l.SRQ, l.Resv
		case *DETH:
			p.DETH = wire.DETH{QKey: l.QKey, SrcQP: ib.QPN(l.SrcQP), Resv: l.Resv}
		case *FETH:
			p.FETH = wire.FETH{Placement: l.Placement, Selectivity: l.Selectivity, Resv: l.Resv}
		case *RETH:
			p.RETH = wire.RETH{VA: l.VA, RKey: ib.Key(l.RKey), Len: l.Length}
		case *AtomicETH:
			p.Atomic = wire.AtomicETH{VA: l.VA, RKey: ib.Key(l.RKey), Swap: l.Swap, Compare: l.Compare}
		case *AETH:
			p.AETH = wire.AETH{Syndrome: l.Syndrome, MSN: ib.PSN(l.MSN)}
		case *AtomicAckETH:
			p.AtomicAck = l.Original
		case *ImmDt:
			p.Imm = l.Imm
		case *IETH:
			p.InvKey = ib.Key(l.RKey)
		case *Payload:
			p.Payload = l.Data
		}
	}
	return p
}
