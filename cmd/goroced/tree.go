//go:build linux

package main

import (
	"strconv"

	"github.com/goroce/goroce/cmd/goroced/internal/sysfs"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce"
)

// createTree writes the files that programs in C find in place of the kernel's. A daemon that may not write there
// serves all the same: few programs look at them.
func (d *daemon) createTree(at socket.Paths) {
	d.treeMu.Lock()
	defer d.treeMu.Unlock()
	tree, err := sysfs.Create(at.Client)
	if err == nil {
		d.tree = tree
		if n := socket.Namespace(); n != 0 {
			tree.Say(socket.NamespaceFile, strconv.FormatUint(n, 10))
		}
		tree.Say(socket.AdminFile, at.Admin)
		err = d.updateTree()
	}
	if err != nil {
		d.log.Warn("programs that look below /sys/class/infiniband see no device", "err", err)
	}
}

// changed logs what an event of a device has changed, and brings the tree up to date (server.Options.OnEvent).
func (d *daemon) changed(dev roce.Device, e ib.Event) {
	if e.Type == ib.EventDeviceFatal {
		d.log.Error("the device is lost: its link has failed; restart the daemon", "device", dev.Attr().Name)
	}
	d.observe(dev)
	d.treeMu.Lock()
	defer d.treeMu.Unlock()
	if d.tree == nil {
		return
	}
	if err := d.updateTree(); err != nil {
		d.log.Warn("the files shown in place of /sys/class/infiniband are out of date", "err", err)
	}
}

// updateTree is called under treeMu.
func (d *daemon) updateTree() error {
	var list []sysfs.Device
	for i, dev := range d.devices {
		one := sysfs.Device{Index: i, Attr: dev.Attr(), Counters: countersOf(dev)}
		var err error
		if one.Port, err = dev.QueryPort(1); err != nil {
			return err
		}
		if one.GIDs, err = dev.GIDs(1); err != nil {
			return err
		}
		list = append(list, one)
	}
	return d.tree.Update(list)
}

// removeTree removes the tree.
func (d *daemon) removeTree() {
	d.treeMu.Lock()
	defer d.treeMu.Unlock()
	if d.tree == nil {
		return
	}
	if err := d.tree.Remove(); err != nil {
		d.log.Warn("the files shown in place of /sys/class/infiniband could not be removed", "err", err)
	}
	d.tree = nil
}

// countersOf returns what a client reads of the counters (abi.OpCounters).
func countersOf(dev roce.Device) (list []sysfs.Counter) {
	stats := dev.Stats()
	for _, c := range stats.PortCounters() {
		list = append(list, sysfs.Counter{Name: c.Name, Value: c.Value})
	}
	for _, c := range stats.Counters() {
		list = append(list, sysfs.Counter{Name: c.Name, Value: c.Value, HW: true})
	}
	return list
}
