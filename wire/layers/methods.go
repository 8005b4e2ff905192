package layers

import "github.com/google/gopacket"

// The methods of gopacket.Layer and gopacket.DecodingLayer that are alike for all headers.

// LayerType returns LayerTypeXRCETH.
func (h *XRCETH) LayerType() gopacket.LayerType { return LayerTypeXRCETH }

// CanDecode returns LayerTypeXRCETH.
func (h *XRCETH) CanDecode() gopacket.LayerClass { return LayerTypeXRCETH }

// NextLayerType returns the next header of the opcode.
func (h *XRCETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeXRCETH) }

// LayerType returns LayerTypeDETH.
func (h *DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

// CanDecode returns LayerTypeDETH.
func (h *DETH) CanDecode() gopacket.LayerClass { return LayerTypeDETH }

// NextLayerType returns the next header of the opcode.
func (h *DETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeDETH) }

// LayerType returns LayerTypeFETH.
func (h *FETH) LayerType() gopacket.LayerType { return LayerTypeFETH }

// CanDecode returns LayerTypeFETH.
func (h *FETH) CanDecode() gopacket.LayerClass { return LayerTypeFETH }

// NextLayerType returns the next header of the opcode.
func (h *FETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeFETH) }

// LayerType returns LayerTypeRETH.
func (h *RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

// CanDecode returns LayerTypeRETH.
func (h *RETH) CanDecode() gopacket.LayerClass { return LayerTypeRETH }

// NextLayerType returns the next header of the opcode.
func (h *RETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeRETH) }

// LayerType returns LayerTypeAtomicETH.
func (h *AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

// CanDecode returns LayerTypeAtomicETH.
func (h *AtomicETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicETH }

// NextLayerType returns the next header of the opcode.
func (h *AtomicETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeAtomicETH) }

// LayerType returns LayerTypeAETH.
func (h *AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

// CanDecode returns LayerTypeAETH.
func (h *AETH) CanDecode() gopacket.LayerClass { return LayerTypeAETH }

// NextLayerType returns the next header of the opcode.
func (h *AETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeAETH) }

// LayerType returns LayerTypeAtomicAckETH.
func (h *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// CanDecode returns LayerTypeAtomicAckETH.
func (h *AtomicAckETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicAckETH }

// NextLayerType returns the next header of the opcode.
func (h *AtomicAckETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeAtomicAckETH) }

// LayerType returns LayerTypeImmDt.
func (h *ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

// CanDecode returns LayerTypeImmDt.
func (h *ImmDt) CanDecode() gopacket.LayerClass { return LayerTypeImmDt }

// NextLayerType returns the next header of the opcode.
func (h *ImmDt) NextLayerType() gopacket.LayerType { return h.after(LayerTypeImmDt) }

// LayerType returns LayerTypeIETH.
func (h *IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

// CanDecode returns LayerTypeIETH.
func (h *IETH) CanDecode() gopacket.LayerClass { return LayerTypeIETH }

// NextLayerType returns the next header of the opcode.
func (h *IETH) NextLayerType() gopacket.LayerType { return h.after(LayerTypeIETH) }
