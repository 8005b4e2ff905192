//go:build rnic && cgo

package rnic

// #include <net/if.h>
// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// deviceCaps are the capabilities whose bits are the same in package ib and in the kernel.
const deviceCaps = ib.CapMemWindow | ib.CapXRC | ib.CapLocalInv | ib.CapMemWindow2B |
	ib.CapFlushGlobal | ib.CapFlushPersistent | ib.CapAtomicWrite

// describe queries the device and fills in d.attr, except for MaxInline, which probe finds out. newDevice calls it
// before others have the device.
func (d *device) describe() error {
	var ex C.struct_ibv_device_attr_ex
	if err := check("query device "+d.name, C.ibv_query_device_ex(d.ctx, nil, &ex)); err != nil {
		return err
	}
	a := &ex.orig_attr
	// device_cap_flags_ex has the bits above 31, if the kernel reports them.
	caps := (ib.DeviceCaps(a.device_cap_flags) | ib.DeviceCaps(ex.device_cap_flags_ex)) & deviceCaps
	if a.max_mcast_grp > 0 && a.max_mcast_qp_attach > 0 {
		caps |= ib.CapMulticast
	}
	// Both are 0 if the provider has no extended query: ibv_query_device_ex then clears all but orig_attr. Without the
	// clock's rate its ticks could not be converted.
	if ex.completion_timestamp_mask != 0 && ex.hca_core_clock != 0 {
		caps |= ib.CapTimestamp
		d.clock = clock{kHz: uint64(ex.hca_core_clock)}
	}
	d.attr = ib.DeviceAttr{
		Name:            d.name,
		FirmwareVersion: C.GoString(&a.fw_ver[0]),
		NodeGUID:        bigEndian(a.node_guid),
		SysImageGUID:    bigEndian(a.sys_image_guid),
		VendorID:        uint32(a.vendor_id),
		VendorPartID:    uint32(a.vendor_part_id),
		HWVersion:       uint32(a.hw_ver),
		Ports:           int(a.phys_port_cnt),
		Caps:            caps,
		Atomic:          ib.AtomicCap(a.atomic_cap),
		MaxQP:           int(a.max_qp),
		MaxQPWR:         int(a.max_qp_wr),
		MaxSGE:          int(a.max_sge),
		MaxCQ:           int(a.max_cq),
		MaxCQE:          int(a.max_cqe),
		CompVectors:     int(d.ctx.num_comp_vectors),
		MaxMR:           int(a.max_mr),
		MaxMRSize:       uint64(a.max_mr_size),
		MaxMW:           int(a.max_mw),
		MaxPD:           int(a.max_pd),
		MaxAH:           int(a.max_ah),
		MaxSRQ:          int(a.max_srq),
		MaxSRQWR:        int(a.max_srq_wr),
		MaxSRQSGE:       int(a.max_srq_sge),
		MaxMcastGroup:   int(a.max_mcast_grp),
		MaxMcastQP:      int(a.max_mcast_qp_attach),
		MaxQPRdAtomic:   int(a.max_qp_rd_atom),
		MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		LocalCAAckDelay: int(a.local_ca_ack_delay),
	}
	if caps&ib.CapXRC != 0 {
		d.attr.MaxXRCD = d.attr.MaxPD // verbs have no limit for XRCDs
	}
	return nil
}

// bigEndian returns the number that a field in network byte order holds. For Go the field's type is a plain integer,
// so it is read as bytes.
func bigEndian(field C.__be64) uint64 {
	return binary.BigEndian.Uint64((*[8]byte)(unsafe.Pointer(&field))[:])
}

// Attr describes the device.
func (d *device) Attr() ib.DeviceAttr { return d.attr }

// lockPort is lock for a verb on a port, whose number it checks.
func (d *device) lockPort(op string, port int) error {
	if port < 1 || port > d.attr.Ports {
		return driver.Refuse(op, "port", port, fmt.Sprintf("1 to %d, the ports of %s", d.attr.Ports, d.name),
			ib.ErrInvalid)
	}
	return d.lock(op)
}

// QueryPort describes a port. Verbs have no name of the network interface: it is that of the first GID. So it is not
// known while the port has no address.
func (d *device) QueryPort(port int) (ib.PortAttr, error) {
	const op = "query port"
	if err := d.lockPort(op, port); err != nil {
		return ib.PortAttr{}, err
	}
	defer d.mu.Unlock()
	var a C.struct_ibv_port_attr
	if err := check(op, C.rnic_query_port(d.ctx, C.int(port), &a)); err != nil {
		return ib.PortAttr{}, err
	}
	rows, err := d.gids(op, port)
	if err != nil {
		return ib.PortAttr{}, err
	}
	attr := ib.PortAttr{
		State:       ib.PortState(a.state),
		PhysState:   ib.PhysState(a.phys_state),
		Caps:        ib.PortCaps(a.port_cap_flags),
		Speed:       lanes[uint8(a.active_width)] * laneSpeed[uint8(a.active_speed)],
		MaxMTU:      ib.MTUFromCode(int(a.max_mtu)),
		ActiveMTU:   ib.MTUFromCode(int(a.active_mtu)),
		MaxMsgSize:  uint32(a.max_msg_sz),
		GIDTableLen: int(a.gid_tbl_len),
	}
	if len(rows) > 0 {
		attr.NetIf = rows[0].NetIf
	}
	return attr, nil
}

// lanes has the number of lanes for ibv_port_attr.active_width. For a code that is not here, or not in laneSpeed, the
// product is 0, which stands for a speed that is not known.
var lanes = map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// laneSpeed has the speed of a lane in Mb/s for ibv_port_attr.active_speed, from SDR to NDR.
var laneSpeed = map[uint8]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000}

// GIDs returns the rows of a port's GID table that are of RoCE v2, in the order
// of their indices. If the device has RoCE v1 too, each address has another row for that. With its index a QP would
// send RoCE v1.
func (d *device) GIDs(port int) ([]ib.GIDEntry, error) {
	const op = "query GIDs"
	if err := d.lockPort(op, port); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	return d.gids(op, port)
}

// gids reads the GID table. The caller holds d.mu. The library returns the rows of all ports that are in use.
func (d *device) gids(op string, port int) ([]ib.GIDEntry, error) {
	table := make([]C.struct_ibv_gid_entry, 256)
	for {
		n, err := C.rnic_query_gids(d.ctx, &table[0], C.size_t(len(table)))
		if n < 0 && len(table) < 1<<16 {
			// The library fails if not all rows fit, with an errno that it has for other reasons too. So each failure
			// is tried again with more room, before it is reported.
			table = make([]C.struct_ibv_gid_entry, 4*len(table))
			continue
		}
		if n < 0 {
			return nil, verbError(op, err)
		}
		table = table[:n]
		break
	}
	var rows []ib.GIDEntry
	for i := range table {
		row := &table[i]
		if row.gid_type == C.IBV_GID_TYPE_ROCE_V2 && int(row.port_num) == port {
			rows = append(rows, ib.GIDEntry{GID: goGID(&row.gid), Index: int(row.gid_index),
				NetIf: interfaceName(row.ndev_ifindex)})
		}
	}
	return rows, nil
}

// interfaceName returns the name of a network interface; "" if it is not visible in this
// network namespace.
func interfaceName(index C.uint32_t) string {
	var name [C.IF_NAMESIZE]C.char
	if index == 0 || C.if_indextoname(C.uint(index), &name[0]) == nil {
		return ""
	}
	return C.GoString(&name[0])
}

// goGID and cGID convert between the two forms of 16 bytes. Both are in network byte order.
func goGID(g *C.union_ibv_gid) ib.GID { return *(*ib.GID)(unsafe.Pointer(g)) }

func cGID(g ib.GID) (c C.union_ibv_gid) {
	*(*ib.GID)(unsafe.Pointer(&c)) = g
	return c
}

// PKey returns a row of a port's partition table.
func (d *device) PKey(port, index int) (uint16, error) {
	const op = "query P_Key"
	if err := d.lockPort(op, port); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	var a C.struct_ibv_port_attr
	if err := check(op, C.rnic_query_port(d.ctx, C.int(port), &a)); err != nil {
		return 0, err
	}
	if index < 0 || index >= int(a.pkey_tbl_len) {
		return 0, driver.Refuse(op, "index", index, fmt.Sprintf("0 to %d", int(a.pkey_tbl_len)-1), ib.ErrInvalid)
	}
	var key C.__be16
	if ret, err := C.ibv_query_pkey(d.ctx, C.uint8_t(port), C.int(index), &key); ret != 0 {
		return 0, verbError(op, err)
	}
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&key))[:]), nil
}

// clock converts the ticks of the device's clock.
type clock struct{ kHz uint64 }

// instant returns ticks / (kHz * 1000) seconds in nanoseconds. The product with 10^6 has up to 84 bits. Div64 panics if
// the quotient has more than 64, so its high part is cut: the result wraps then.
func (c clock) instant(ticks uint64) ib.Instant {
	hi, lo := bits.Mul64(ticks, 1e6)
	ns, _ := bits.Div64(hi%c.kHz, lo, c.kHz)
	return ib.Instant(ns)
}

// Clock returns the time of the clock that stamps completions. It counts from an arbitrary instant, so it is to be
// compared with WC.Timestamp only.
func (d *device) Clock() (ib.Instant, error) {
	const op = "query clock"
	if d.attr.Caps&ib.CapTimestamp == 0 {
		return 0, fmt.Errorf("%s: device %s does not stamp completions: %w", op, d.name, ib.ErrNotSupported)
	}
	if err := d.lock(op); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	var ticks C.uint64_t
	if err := check(op, C.rnic_clock(d.ctx, &ticks)); err != nil {
		return 0, err
	}
	return d.clock.instant(uint64(ticks)), nil
}
