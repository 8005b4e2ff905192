package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goroce/goroce/internal/socket"
)

// check finds conflicts between settings, and completes the devices.
func (c *Config) check() (errs []error) {
	if len(c.Devices) == 0 {
		c.Devices = make([]Device, 1)
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		d.Link, d.Congestion = cmp.Or(d.Link, "auto"), cmp.Or(d.Congestion, "cubic")
	}
	refuse := func(key string, v any, allowed string) { errs = append(errs, c.conflict(key, v, allowed)) }
	for _, s := range []struct{ key, path string }{{"socket", c.Socket}, {"admin", c.Admin}} {
		if s.path == "" {
			refuse(s.key, s.path, "a path")
		} else if len(s.path) > socket.MaxPath {
			refuse(s.key, s.path, fmt.Sprintf("up to %d bytes", socket.MaxPath))
		}
	}
	if c.Socket == c.Admin && c.Socket != "" {
		refuse("admin", c.Admin, "a path that is not that of socket")
	}
	if a := c.Metrics.Addr(); a.IsValid() && !a.IsLoopback() && !c.MetricsPublic {
		refuse("metrics.listen", c.Metrics.String(),
			"a loopback address, as anybody who reaches it may read what users hold; or set metrics.public = true")
	}
	if c.MetricsProfiles && c.MetricsPublic {
		refuse("metrics.pprof", true, "false where metrics.public is set, as profiles show the insides of the daemon")
	}
	return append(errs, c.checkDevices()...)
}

// conflict returns the error of a value that conflicts with others.
func (c *Config) conflict(key string, v any, allowed string) *Error {
	from := c.origins[key]
	return &Error{Source: from.source, Line: from.line, Key: key, Value: v, Allowed: allowed, Err: ErrConflict}
}

// Missing returns the error of a value of device i that names something that this machine does not have.
func (c *Config) Missing(i int, key string, v any, allowed string) *Error {
	e := c.conflict(fmt.Sprintf("%s[%d].%s", deviceKey, i, key), v, allowed)
	e.Err = ErrMissing
	return e
}

// checkDevices finds devices that exclude one another.
func (c *Config) checkDevices() (errs []error) {
	names, netifs, addrs := map[string]int{}, map[string]int{}, map[netip.Addr]int{}
	for i, d := range c.Devices {
		prefix := fmt.Sprintf("%s[%d].", deviceKey, i)
		refuse := func(key string, v any, allowed string) {
			errs = append(errs, c.conflict(prefix+key, v, allowed))
		}
		if d.NetIf != "" && len(d.Addresses) > 0 {
			refuse("addresses", addresses(&d.Addresses).get(), "netif or addresses, not both")
		}
		if d.NetIf == "" && len(d.Addresses) == 0 && len(c.Devices) > 1 {
			refuse("netif", d.NetIf, "netif or addresses for each of several devices")
		}
		if at, taken := names[d.Name]; taken && d.Name != "" {
			refuse("name", d.Name, fmt.Sprintf("a name that device[%d] does not have", at))
		}
		if at, taken := netifs[d.NetIf]; taken && d.NetIf != "" {
			refuse("netif", d.NetIf, fmt.Sprintf("an interface that device[%d] does not have", at))
		}
		for _, a := range d.Addresses {
			if at, taken := addrs[a]; taken {
				refuse("addresses", a.String(), fmt.Sprintf("addresses that device[%d] does not have", at))
			}
			addrs[a] = i
		}
		names[d.Name], netifs[d.NetIf] = i, i
	}
	return errs
}

// Restart returns the keys whose values differ in old and c, and which a reload cannot change.
func (c *Config) Restart(old *Config) (keys []string) {
	before := old.Settings()
	values := map[string]string{}
	for _, s := range before {
		values[s.Key] = display(s.Value)
	}
	for _, s := range c.Settings() {
		if was, known := values[s.Key]; !s.live && (!known || was != display(s.Value)) {
			keys = append(keys, s.Key)
		}
		delete(values, s.Key)
	}
	for _, s := range before { // of removed devices
		if _, left := values[s.Key]; left && strings.HasPrefix(s.Key, deviceKey) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
