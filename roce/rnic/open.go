//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Devices returns the names of the machine's RDMA devices.
func Devices() ([]string, error) {
	_, names, free, err := deviceList()
	if err == nil {
		free()
	}
	return names, err
}

// deviceList returns the devices that libibverbs has found, and their names. The devices are valid
// until free, which is nil with an error. An opened device stays valid after free: its context holds
// a reference to it.
func deviceList() (list []*C.struct_ibv_device, names []string, free func(), err error) {
	var n C.int
	array, err := C.ibv_get_device_list(&n)
	switch {
	case array != nil:
		list = unsafe.Slice(array, int(n))
		for _, dev := range list {
			names = append(names, C.GoString(C.ibv_get_device_name(dev)))
		}
		return list, names, func() { C.ibv_free_device_list(array) }, nil
	case errors.Is(err, syscall.ENOSYS): // the kernel has no RDMA support
		return nil, nil, func() {}, nil
	}
	return nil, nil, nil, verbError("list RDMA devices", err)
}

// Open opens an RDMA device by its name, as Devices lists it; "" takes the first.
// The device belongs to the caller, who closes it. A device may be opened several times, with a context of its own
// each time; objects of one cannot be used with another (ib.ErrForeign).
//
// Open tries out what the device can do (probe.go), so it creates and destroys a few objects.
func Open(name string) (ib.Device, error) {
	const op = "open RDMA device"
	list, names, free, err := deviceList()
	if err != nil {
		return nil, err
	}
	defer free()
	at := slices.Index(names, name)
	switch {
	case len(names) == 0:
		return nil, driver.Refuse(op, "name", fmt.Sprintf("%q", name),
			"none: this machine has no RDMA device (rdma link add rxe0 type rxe netdev eth0 makes a software one)",
			ib.ErrInvalid)
	case name == "":
		at = 0
	case at < 0:
		return nil, driver.Refuse(op, "name", fmt.Sprintf("%q", name), strings.Join(names, ", "), ib.ErrInvalid)
	}
	ctx, err := C.ibv_open_device(list[at])
	if ctx == nil {
		return nil, verbError(op+" "+names[at], err)
	}
	return newDevice(names[at], ctx)
}
