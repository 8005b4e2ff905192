package abi

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

// body reads b as a T, and returns what f makes of it. It checks that T has the length of b, and that
// putting it gives b again.
func body[T any](f func(*T) any) func(t *testing.T, b []byte) any {
	return func(t *testing.T, b []byte) any {
		v, err := Get[T](b)
		if fits := len(b) == int(reflect.TypeFor[T]().Size()); fits != (err == nil) {
			t.Fatalf("%d bytes as %T: %v, want no error: %v", len(b), v, err, fits)
		}
		if err != nil {
			return nil
		}
		if again := Put(nil, &v); !bytes.Equal(again, b) {
			t.Fatalf("%T\n got % x\nwant % x", v, again, b)
		}
		return f(&v)
	}
}

// conversions convert a body to its type of package ib, that value to a body, and this body to the type again. They
// return both values of the type, which must be equal. Other results are not compared.
var conversions = []func(t *testing.T, b []byte) any{
	body(func(q *QPAttr) any {
		a := q.Attr()
		b := QPAttrOf(q.QP, &a, ib.QPAttrMask(q.Mask))
		return []any{a, b.Attr()}
	}),
	body(func(r *DeviceReply) any {
		a := r.Attr()
		a.Name, a.FirmwareVersion = a.Name[:min(len(a.Name), 63)], a.FirmwareVersion[:min(len(a.FirmwareVersion), 63)]
		b := DeviceOf(&a)
		return []any{a, b.Attr()}
	}),
	body(func(r *AH) any {
		a := r.Attr()
		b := AHOf(&a)
		return []any{a, b.Attr()}
	}),
	body(func(r *CMAddr) any {
		a := r.AddrPort()
		b := CMAddrOf(a)
		return []any{netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), b.AddrPort()}
	}),
	body(func(r *CMConnect) any {
		a := r.Conn()
		b := CMConnectOf(r.ID, &a)
		return []any{a, b.Conn()}
	}),
	body(func(r *CMReject) any {
		a := r.Reject()
		b := CMRejectOf(r.ID, &a)
		return []any{a, b.Reject()}
	}),
	body(func(r *CMIDAttr) any {
		a := r.Attr()
		a.Local, a.Remote = unmap(a.Local), unmap(a.Remote)
		b := CMIDAttrOf(&a)
		return []any{a, b.Attr()}
	}),
	body(func(r *CMEvent) any {
		a := r.Event()
		a.Group = a.Group.Unmap()
		b := CMEventOf(&a)
		return []any{a, b.Event()}
	}),
	body(func(r *Hello) any { return nil }),
	body(func(r *HelloReply) any { return r.Names[0].String() }),
	body(func(r *Ring) any { return nil }),
	body(func(r *ReregMR) any { return nil }),
	body(func(r *CreateQP) any { return nil }),
	body(func(r *Header) any { return r.Op.String() }),
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// FuzzBodies reads arbitrary bytes as bodies of messages. Only the length decides whether that is
// possible; what was read is put as the same bytes; and what is converted to the types of package ib and back
// is the same.
func FuzzBodies(f *testing.F) {
	for i, b := range [][]byte{
		Put(nil, &QPAttr{State: 3, DestQPN: 7, AH: AH{Port: 1}}),
		Put(nil, &DeviceReply{Name: NameOf("goroce0"), CompVectors: 1}),
		Put(nil, &AH{SGIDIndex: 1, HopLimit: 64}), Put(nil, &CMAddr{Family: 4, Port: 7471}),
		Put(nil, &CMConnect{Param: CMParam{PrivateLen: 255}}), Put(nil, &CMReject{InfoLen: 73, PrivateLen: 201}),
		Put(nil, &CMIDAttr{Local: CMAddr{Family: 6}}),
		Put(nil, &CMEvent{Type: CMNoEvent, Param: CMParam{InfoLen: 255}}),
		Put(nil, &Hello{Magic: Magic}), Put(nil, &HelloReply{Devices: MaxDevices + 1}),
		Put(nil, &Ring{Size: 1 << 63}), Put(nil, &ReregMR{Mask: 7}), Put(nil, &CreateQP{Type: 2}),
		Put(nil, &Header{Op: numOps}),
	} {
		f.Add(byte(i), b)
		f.Add(byte(i), b[1:])
		f.Add(byte(i), bytes.Repeat([]byte{0xFF}, len(b)))
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		got, ok := conversions[int(kind)%len(conversions)](t, b).([]any)
		if !ok {
			return
		}
		if diff := cmp.Diff(got[0], got[1], cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
			cmp.Comparer(bytes.Equal)); diff != "" {
			t.Error(diff)
		}
	})
}
