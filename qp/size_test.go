package qp

import (
	"testing"
	"unsafe"
)

// TestSizes: an idle QP is made of these. The allocator has objects of 1,152
// bytes, of which it takes 8 for itself, and the next larger ones have 1,280.
func TestSizes(t *testing.T) {
	const most = 1152 - 8
	for _, c := range []struct {
		what string
		size uintptr
	}{
		{"a QP", unsafe.Sizeof(QP{})},
		{"16 responder resources", 16 * unsafe.Sizeof(resource{})},
		{"64 READs in flight", 64 * unsafe.Sizeof(readReq{})},
		{"4 send queue entries", 4 * unsafe.Sizeof(sendWQE{})},
	} {
		if c.size > most {
			t.Errorf("%s: %d bytes, at most %d", c.what, c.size, most)
		}
	}
}
