package layers

import (
	"fmt"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/goroce/goroce/wire"
)

// Layer types. gopacket leaves the numbers from 1000 on to applications.
const (
	LayerTypeBTH gopacket.LayerType = 1791 + iota
	LayerTypeXRCETH
	LayerTypeDETH
	LayerTypeFETH
	LayerTypeRETH
	LayerTypeAtomicETH
	LayerTypeAETH
	LayerTypeAtomicAckETH
	LayerTypeImmDt
	LayerTypeIETH
	LayerTypePayload
	LayerTypeICRC
)

// layer is implemented by every type of this package.
type layer interface {
	gopacket.Layer
	gopacket.DecodingLayer
	gopacket.SerializableLayer
	Follow(*BTH)
}

// kind is a layer type with its name and constructor.
type kind struct {
	typ  gopacket.LayerType
	name string
	make func() layer
}

// kinds lists the layer types, in the order of their numbers.
var kinds = []kind{
	{LayerTypeBTH, "BTH", func() layer { return new(BTH) }},
	{LayerTypeXRCETH, "XRCETH", func() layer { return new(XRCETH) }},
	{LayerTypeDETH, "DETH", func() layer { return new(DETH) }},
	{LayerTypeFETH, "FETH", func() layer { return new(FETH) }},
	{LayerTypeRETH, "RETH", func() layer { return new(RETH) }},
	{LayerTypeAtomicETH, "AtomicETH", func() layer { return new(AtomicETH) }},
	{LayerTypeAETH, "AETH", func() layer { return new(AETH) }},
	{LayerTypeAtomicAckETH, "AtomicAckETH", func() layer { return new(AtomicAckETH) }},
	{LayerTypeImmDt, "ImmDt", func() layer { return new(ImmDt) }},
	{LayerTypeIETH, "IETH", func() layer { return new(IETH) }},
	{LayerTypePayload, "RoCEPayload", func() layer { return new(Payload) }},
	{LayerTypeICRC, "ICRC", func() layer { return new(ICRC) }},
}

func init() {
	for _, k := range kinds {
		decode := func(data []byte, p gopacket.PacketBuilder) error { return decodeFrom(k.typ, data, p) }
		gopacket.RegisterLayerType(int(k.typ),
			gopacket.LayerTypeMetadata{Name: k.name, Decoder: gopacket.DecodeFunc(decode)})
	}
	layers.RegisterUDPPortLayerType(wire.Port, LayerTypeBTH)
}

// decodeFrom adds the layer of the given type, and all that follow it, to p.
func decodeFrom(typ gopacket.LayerType, data []byte, p gopacket.PacketBuilder) error {
	var bth *BTH
	for typ != gopacket.LayerTypeZero {
		l := kinds[typ-LayerTypeBTH].make()
		l.Follow(bth)
		if err := l.DecodeFromBytes(data, p); err != nil {
			return err
		}
		p.AddLayer(l)
		switch l := l.(type) {
		case *BTH:
			bth = l
		case *Payload:
			p.SetApplicationLayer(l)
		}
		typ, data = l.NextLayerType(), l.LayerPayload()
	}
	return nil
}

// extensions returns the types of the headers that follow a BTH with this opcode,
// in order; none if the opcode is unknown (IBTA 9.2.1, A19).
func extensions(opcode wire.Opcode) (types []gopacket.LayerType) {
	op := opcode & 0x1F
	response := op >= 0x0D && op <= 0x12
	switch service := opcode >> 5; {
	case service == 0: // RC
	case service == 1 && op <= 0x0B: // UC: SEND and WRITE
	case service == 3 && (op == 0x04 || op == 0x05): // UD: SEND only
		types = append(types, LayerTypeDETH)
	case service == 5 && response: // XRC
	case service == 5:
		types = append(types, LayerTypeXRCETH)
	default:
		return nil
	}
	switch op {
	case 0x03, 0x05, 0x09: // SEND last, only, WRITE last, with immediate
		return append(types, LayerTypeImmDt)
	case 0x06, 0x0A, 0x0C, 0x1D: // WRITE first, only; READ; ATOMIC WRITE
		return append(types, LayerTypeRETH)
	case 0x0B: // WRITE only with immediate
		return append(types, LayerTypeRETH, LayerTypeImmDt)
	case 0x0D, 0x0F, 0x10, 0x11: // READ response first, last, only; ACK
		return append(types, LayerTypeAETH)
	case 0x12: // ATOMIC ACK
		return append(types, LayerTypeAETH, LayerTypeAtomicAckETH)
	case 0x13, 0x14: // CmpSwap, FetchAdd
		return append(types, LayerTypeAtomicETH)
	case 0x16, 0x17: // SEND last, only, with invalidate
		return append(types, LayerTypeIETH)
	case 0x1C: // FLUSH
		return append(types, LayerTypeFETH, LayerTypeRETH)
	case 0x15, 0x18, 0x19, 0x1A, 0x1B, 0x1E, 0x1F: // not assigned
		return nil
	}
	return types
}

// header is the part that all layers share.
type header struct {
	layers.BaseLayer
	bth *BTH
}

// Follow tells the layer which BTH it belongs to. Decoding needs that to find the next layer; otherwise it is payload.
func (h *header) Follow(bth *BTH) { h.bth = bth }

// take makes the first n bytes of data the layer's contents, and the others its payload.
func (h *header) take(name string, data []byte, n int, df gopacket.DecodeFeedback) error {
	if len(data) < n {
		df.SetTruncated()
		return fmt.Errorf("%s: %d bytes left, want %d", name, len(data), n)
	}
	h.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
	return nil
}

// after returns the type of the layer that follows one of type typ.
func (h *header) after(typ gopacket.LayerType) gopacket.LayerType {
	if h.bth != nil {
		chain := append([]gopacket.LayerType{LayerTypeBTH}, extensions(h.bth.Opcode)...)
		if i := slices.Index(chain, typ); i >= 0 && i+1 < len(chain) {
			return chain[i+1]
		}
	}
	if len(h.Payload) > icrcLen {
		return LayerTypePayload
	}
	return LayerTypeICRC
}
