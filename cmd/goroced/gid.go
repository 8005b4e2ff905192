//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// gidFlag chooses a row of the GID table: by its index, or by the address that it has. -1 chooses none.
type gidFlag struct {
	index int
	addr  netip.Addr
}

// UnmarshalText parses a number or an address.
func (f *gidFlag) UnmarshalText(text []byte) error {
	*f = gidFlag{index: -1}
	n, err := strconv.Atoi(string(text))
	if err == nil {
		f.index = n
		return nil
	}
	if f.addr, err = netip.ParseAddr(string(text)); err != nil {
		return fmt.Errorf("%q is neither an index of the GID table nor an address", text)
	}
	f.addr = f.addr.WithZone("")
	return nil
}

// given reports whether the flag chooses a row.
func (f *gidFlag) given() bool { return f.index >= 0 || f.addr.IsValid() }

// of returns the index of the row in a device's table; -1 if the flag chooses none.
func (f *gidFlag) of(d ib.Device) (int, error) {
	if !f.addr.IsValid() {
		return f.index, nil
	}
	table, err := d.GIDs(1)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(table, func(e ib.GIDEntry) bool { return e.GID.Addr() == f.addr.Unmap() })
	if i < 0 {
		var has []string
		for _, e := range table {
			has = append(has, e.GID.Addr().String())
		}
		return 0, driver.Refuse("choose an address", "GIDIndex", f.addr, "an index, or one of "+strings.Join(has, ", "),
			ib.ErrInvalid)
	}
	return table[i].Index, nil
}

// at takes the interface that has the address of the flag, if the flags of the device leave it open.
func (f *deviceFlags) at(gid *gidFlag) {
	if f.open() && gid.addr.IsValid() {
		f.NetIf = device.Holding(gid.addr)
	}
}
