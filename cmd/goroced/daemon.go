//go:build linux

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/config"
	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
	"github.com/goroce/goroce/cmd/goroced/internal/sysfs"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
)

// daemon is what `goroced serve` runs: the devices of a configuration, and the server for clients.
type daemon struct {
	*server.Server
	started time.Time
	devices []roce.Device
	live    host.Live // captures and faults
	log     *slog.Logger

	portsMu sync.Mutex
	ports   map[string]portSeen // by the devices' names

	treeMu sync.Mutex
	tree   *sysfs.Tree // nil if it cannot be written
}

// openDaemon opens all devices. If one fails, it closes the others.
func openDaemon(c *config.Config, at socket.Paths, log *slog.Logger) (runner.Daemon, http.Handler, func() error,
	error) {
	d := &daemon{started: time.Now(), log: log, ports: map[string]portSeen{}}
	for i, device := range c.Devices {
		o := host.Options{Live: &d.live, Link: device.Link, NetIf: device.NetIf, Addrs: device.Addresses,
			Shards: device.Shards}
		o.Device.Name, o.Device.PinSourcePort = device.Name, device.PinPorts
		o.Device.Congestion = device.Congestion
		o.Device.OnOffloadOff = func(peer ib.GID) {
			log.Warn("segmentation offload is switched off for a peer", "peer", peer.Addr())
		}
		o.Device.OnStall = func(late time.Duration) { // the shard does not wait for the log
			go log.Warn("the device stood still: no processor, or the daemon was stopped; peers may have given up",
				"for", late.Round(time.Millisecond))
		}
		o.OnNetIf = func(name string, index int) { logNetIf(log, name, index) }
		o.OnAddress = func(err error) { log.Warn("an address cannot be used", "err", err) }
		dev, err := host.Open(o)
		if err == nil && d.has(dev.Attr().Name) {
			err = errors.Join(&config.Error{Key: fmt.Sprintf("device[%d].name", i), Value: dev.Attr().Name,
				Allowed: "a name that no other device has", Err: config.ErrConflict}, dev.Close())
		}
		if err != nil {
			return nil, nil, nil, errors.Join(err, d.close())
		}
		d.devices = append(d.devices, dev)
		d.observe(dev)
		gids, _ := dev.GIDs(1) // it is open
		log.Info("device", "name", dev.Attr().Name, "netif", dev.Link().NetIf, "addresses", addressesOf(gids), "link",
			dev.Link().Name, "note", dev.Link().Note, "shards", dev.Shards())
	}
	var err error
	if d.Server, err = server.New(d.devices, server.Options{Log: log, OnEvent: d.changed,
		NoAdministrator: c.Administrator == "none"}); err != nil {
		return nil, nil, nil, errors.Join(err, d.close())
	}
	d.createTree(at)
	if err := d.Reload(c); err != nil {
		return nil, nil, nil, errors.Join(err, d.close())
	}
	mux := http.NewServeMux()
	admin.Register(mux, &d.live)
	admin.RegisterView(mux, d)
	d.live.Connection = d.connection
	d.live.OnFault = func(r host.DeviceRule, added bool) {
		what := "a fault has ended"
		if added {
			what = "packets are disturbed from now on: a fault was added"
		}
		fault := admin.FaultOf(&r)
		log.Warn(what, "fault", fault.String())
	}
	return d, mux, d.close, nil
}

// logNetIf says what has become of the interface of a device.
func logNetIf(log *slog.Logger, name string, index int) {
	if index == 0 {
		log.Warn("the network interface is gone; its device is down until there is one of this name again", "netif",
			name)
		return
	}
	log.Warn("the network interface was made again; its device follows, unless its link is afxdp, which takes a "+
		"restart", "netif", name, "index", index)
}

// Reload takes the limits of a configuration, and whose memory may be registered.
func (d *daemon) Reload(c *config.Config) error {
	user := serverLimits(&c.User.Limits)
	user.Connections = c.User.Connections
	user.CM = server.CMLimits{IDs: c.User.CMIDs, Listeners: c.User.CMListeners, HalfOpen: c.User.CMHalfOpen,
		Backlog: c.User.CMBacklog}
	d.SetLimits(serverLimits(&c.Connection), user)
	d.SetProcesses(c.OwnProcesses, c.OtherProcesses)
	return nil
}

func serverLimits(l *config.Limits) server.Limits {
	return server.Limits{QPs: l.QPs, MRs: l.MRs, MWs: l.MWs, CQs: l.CQs, CQEntries: l.CQEntries, PDs: l.PDs,
		SRQs: l.SRQs,
		AHs:  l.AHs, XRCDs: l.XRCDs, Channels: l.Channels, Pinned: l.Pinned, Heap: l.Heap}
}

func (d *daemon) has(name string) bool {
	return slices.ContainsFunc(d.devices, func(dev roce.Device) bool { return dev.Attr().Name == name })
}

func (d *daemon) close() (err error) {
	d.removeTree()
	for _, dev := range d.devices {
		err = errors.Join(err, dev.Close())
	}
	if d.Server != nil {
		err = errors.Join(err, d.Server.Close())
	}
	return err
}

// Stats returns the statistics of all devices.
func (d *daemon) Stats() map[string]roce.Stats {
	stats := map[string]roce.Stats{}
	for _, dev := range d.devices {
		stats[dev.Attr().Name] = dev.Stats()
	}
	return stats
}

// QPSums returns sums over the queue pairs of clients, by the names of all devices.
func (d *daemon) QPSums() map[string]*server.QPSums {
	sums := d.Server.QPSums()
	for _, dev := range d.devices {
		if name := dev.Attr().Name; sums[name] == nil {
			sums[name] = &server.QPSums{} // a device without queue pairs is shown with zeros
		}
	}
	return sums
}

// Status returns the state of the daemon and its devices.
func (d *daemon) Status() any {
	return admin.Status{Version: readVersion(), PID: os.Getpid(), Started: d.started, Now: time.Now(),
		Clients: d.Clients(), Users: d.Usage(), Devices: d.Devices()}
}

// addressesOf returns the addresses of a GID table.
func addressesOf(gids []ib.GIDEntry) (list []netip.Addr) {
	for _, e := range gids {
		list = append(list, e.GID.Addr())
	}
	return list
}

// Devices returns a description of each device.
func (d *daemon) Devices() []admin.Device {
	list := []admin.Device{}
	for _, dev := range d.devices {
		caps, attr := dev.Link(), dev.Attr()
		rules, _ := d.live.Rules(attr.Name) // none if it is being closed
		one := admin.Device{Faults: len(rules), Name: attr.Name, GUID: admin.GUID(attr.NodeGUID),
			State: ib.PortDown.String(),
			Link:  caps.Name, Note: caps.Note, NetIf: caps.NetIf, Shards: dev.Shards()}
		if port, err := dev.QueryPort(1); err == nil {
			one.State, one.MTU, one.NetIf = port.State.String(), int(port.ActiveMTU), port.NetIf
		}
		gids, _ := dev.GIDs(1)
		one.Addresses = addressesOf(gids)
		for _, e := range gids {
			one.GIDIndexes = append(one.GIDIndexes, e.Index)
		}
		stats := dev.Stats()
		one.Since, one.SentBytes, one.RcvdBytes = d.since(attr.Name), stats.Link.TxBytes, stats.Link.RxBytes
		one.SendErr, one.RxOverflow = stats.Link.TxErrors, stats.Link.RxOverflow
		list = append(list, one)
	}
	return list
}

// Counters returns the counters of all devices.
func (d *daemon) Counters() map[string]admin.Counters {
	all := map[string]admin.Counters{}
	for name, stats := range d.Stats() {
		for _, c := range stats.Counters() {
			all[name] = append(all[name], admin.Counter(c))
		}
		all[name] = append(all[name], admin.Counter{Name: admin.SentBytes, Value: stats.Link.TxBytes},
			admin.Counter{Name: admin.RcvdBytes, Value: stats.Link.RxBytes})
	}
	return all
}

// connection returns the peer of a queue pair, for captures and faults.
func (d *daemon) connection(device string, qpn ib.QPN) (peer ib.GID, peerQPN ib.QPN, ok bool) {
	for _, q := range d.QPs() {
		if q.Device == device && q.QPN == uint32(qpn) && q.Peer.IsValid() {
			return ib.GIDFromAddr(q.Peer), ib.QPN(q.PeerQPN), true
		}
	}
	return peer, 0, false
}
