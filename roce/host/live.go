package host

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// Live captures the traffic of devices while they run, and applies faults to it: of the devices that were opened with
// it (Options.Live), until they are closed. It may be used from several goroutines at once. The zero value is ready.
type Live struct {
	// Connection returns the peer, and the peer's QP, of a connected QP of this host. It is called when a capture or a
	// rule names only the QP of this host, because sent frames of a connection do not have its number. If it is nil, no
	// connection is known. Set it before the first use.
	Connection func(device string, qpn ib.QPN) (peer ib.GID, peerQPN ib.QPN, ok bool)

	// OnFault, if not nil, is told of each rule that is added to a device, or removed from it, also at the end of its
	// TTL. Set it before the first use.
	OnFault func(r DeviceRule, added bool)

	mu      sync.Mutex
	devices []*liveDevice
}

type liveDevice struct {
	name  string
	tap   wrap.Tap
	rules wrap.Rules
}

// DeviceRule is a rule of one of the devices.
type DeviceRule struct {
	Device string
	wrap.RuleStatus
}

// Devices returns the names of the devices, in the order in which they were opened.
func (l *Live) Devices() []string {
	var names []string
	for _, d := range l.running() {
		names = append(names, d.name)
	}
	return names
}

// Capture starts a capture on a device; "" is the only device. See wrap.Tap.
func (l *Live) Capture(device string, w io.Writer, m wrap.Match) (*wrap.Capture, error) {
	d, err := l.device("start capture", device)
	if err != nil {
		return nil, err
	}
	return d.tap.Attach(w, l.complete(d, m))
}

// AddRule adds a rule to a device; "" is the only device. See wrap.Rules.
func (l *Live) AddRule(device string, r wrap.Rule) (DeviceRule, error) {
	d, err := l.device("add fault rule", device)
	if err != nil {
		return DeviceRule{}, err
	}
	r.Match = l.complete(d, r.Match)
	st, err := d.rules.Add(r)
	return DeviceRule{d.name, st}, err
}

// Rules returns the rules of a device; "" is all devices.
func (l *Live) Rules(device string) ([]DeviceRule, error) {
	var rules []DeviceRule
	err := l.each("list fault rules", device, func(d *liveDevice) {
		for _, st := range d.rules.List() {
			rules = append(rules, DeviceRule{d.name, st})
		}
	})
	return rules, err
}

// RemoveRule removes a rule from a device; "" is the only device.
func (l *Live) RemoveRule(device string, id uint64) error {
	d, err := l.device("remove fault rule", device)
	if err != nil {
		return err
	}
	return d.rules.Remove(id)
}

// ClearRules removes all rules of a device ("": of all devices) and returns their number.
func (l *Live) ClearRules(device string) (n int, err error) {
	err = l.each("clear fault rules", device, func(d *liveDevice) { n += d.rules.Clear() })
	return n, err
}

// complete adds the peer of the connection to m, if m names only the QP of this host.
func (l *Live) complete(d *liveDevice, m wrap.Match) wrap.Match {
	if l.Connection == nil || m.QPN == 0 || m.PeerQPN != 0 {
		return m
	}
	peer, qpn, ok := l.Connection(d.name, m.QPN)
	if !ok || m.Peer != (ib.GID{}) && m.Peer != peer {
		return m
	}
	m.Peer, m.PeerQPN = peer, qpn
	return m
}

// running returns the devices that are not closed, and removes the others.
func (l *Live) running() []*liveDevice {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices = slices.DeleteFunc(l.devices, func(d *liveDevice) bool { return d.tap.Closed() })
	return slices.Clone(l.devices)
}

// device returns the device with that name, for "" the only one.
func (l *Live) device(op, name string) (*liveDevice, error) {
	running := l.running()
	var names []string
	for _, d := range running {
		if d.name == name || name == "" && len(running) == 1 {
			return d, nil
		}
		names = append(names, d.name)
	}
	err := driver.Refuse(op, "device", fmt.Sprintf("%q", name), strings.Join(names, ", "), ib.ErrInvalid)
	if len(running) == 0 {
		err.Allowed = "no device is open"
	}
	return nil, err
}

// each calls f for the device with that name, for "" for all of them.
func (l *Live) each(op, name string, f func(*liveDevice)) error {
	if name != "" {
		d, err := l.device(op, name)
		if err != nil {
			return err
		}
		f(d)
		return nil
	}
	for _, d := range l.running() {
		f(d)
	}
	return nil
}

// add adds a device that has been opened.
func (l *Live) add(d *liveDevice) {
	d.rules.OnChange = func(r wrap.RuleStatus, added bool) {
		if l.OnFault != nil {
			l.OnFault(DeviceRule{d.name, r}, added)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices = append(l.devices, d)
}

// The methods of liveDevice work on nil, too: a device that is not live has no wrappers for it.

func (d *liveDevice) tapped(l link.Link) link.Link {
	if d == nil {
		return l
	}
	return d.tap.Around(l)
}

func (d *liveDevice) corrupted(l link.Link) link.Link {
	if d == nil {
		return l
	}
	return d.rules.Below(l)
}

func (d *liveDevice) ruled(l link.Link) link.Link {
	if d == nil {
		return l
	}
	return d.rules.Above(l)
}
