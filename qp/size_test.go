package qp

import (
	"testing"
	"unsafe"
)

// TestSizes checks the sizes of the structs of an idle QP. The allocator has size classes
// of 1,152 and of 1,280 bytes, of which it uses 8 itself.
func TestSizes(t *testing.T) {
	const most = 1152 - 8
	for _, c := range []struct {
		what string
		size uintptr
		most uintptr
	}{
		{"a QP", unsafe.Sizeof(QP{}), 1280 - 8},
		{"16 responder resources", 16 * unsafe.Sizeof(resource{}), most},
		{"64 READs in flight", 64 * unsafe.Sizeof(readReq{}), most},
		{"4 send queue entries", 4 * unsafe.Sizeof(sendWQE{}), most},
	} {
		if c.size > c.most {
			t.Errorf("%s: %d bytes, want at most %d", c.what, c.size, c.most)
		}
	}
}
