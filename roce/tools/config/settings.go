package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/tools/config/socket"
)

// setting is a key of the configuration.
type setting struct {
	key   string // as in the file: "limits.user.qps"
	live  bool   // a reload changes it, without a restart
	value value
}

// maxCount bounds counts of objects: QP numbers have 24 bits.
const maxCount = 1 << 24

// settings lists all keys but those of devices, bound to c.
func settings(c *Config) []setting {
	return append(append([]setting{
		{"socket", false, path(&c.Socket)},
		{"admin", false, path(&c.Admin)},
		{"socket_mode", false, permissions(&c.SocketMode)},
		{"socket_group", false, text(&c.SocketGroup, `a group's name or number, or "" for the daemon's own`, printable)},
		{"drain", true, duration(&c.Drain, time.Hour)},
		{"limits.user.connections", true, integer{&c.User.Connections, maxCount}}},
		append(limits("limits.user.", &c.User.Limits), limits("limits.connection.", &c.Connection)...)...),
		setting{"memory.own_processes", true, boolean{&c.OwnProcesses}},
		setting{"memory.other_processes", true, boolean{&c.OtherProcesses}},
		setting{"log.level", true, level(&c.LogLevel)},
		setting{"log.format", false, choice(&c.LogFormat, "text", "json")},
		setting{"metrics.listen", false, listen(&c.Metrics)},
		setting{"metrics.public", false, boolean{&c.MetricsPublic}},
	)
}

func limits(prefix string, l *Limits) []setting {
	return []setting{
		{prefix + "qps", true, integer{&l.QPs, maxCount}},
		{prefix + "mrs", true, integer{&l.MRs, maxCount}},
		{prefix + "mws", true, integer{&l.MWs, maxCount}},
		{prefix + "cq_entries", true, integer{&l.CQEntries, 1 << 30}},
		{prefix + "pds", true, integer{&l.PDs, maxCount}},
		{prefix + "srqs", true, integer{&l.SRQs, maxCount}},
		{prefix + "ahs", true, integer{&l.AHs, maxCount}},
		{prefix + "xrcds", true, integer{&l.XRCDs, maxCount}},
		{prefix + "channels", true, integer{&l.Channels, maxCount}},
		{prefix + "pinned", true, bytesize{&l.Pinned}},
	}
}

// deviceSettings lists the keys of a device, bound to d. The prefix is that of the
// keys: "device[0].", or "device." where there is one at most.
func deviceSettings(prefix string, d *Device) []setting {
	return []setting{
		{prefix + "name", false, text(&d.Name, `up to 63 letters, digits, and _ . - :, or "" for a name after the interface`, deviceName)},
		{prefix + "link", false, choice(&d.Link, "auto", "udp", "rawsock", "afxdp")},
		{prefix + "netif", false, text(&d.NetIf, "the name of a network interface", func(s string) bool { return len(s) < 16 && printable(s) })},
		{prefix + "addresses", false, addresses{&d.Addresses}},
		{prefix + "shards", false, shards{integer{&d.Shards, link.MaxShards}}},
	}
}

// shards is a power of two, or 0.
type shards struct{ integer }

func (shards) allowed() string { return fmt.Sprintf("0, or a power of two up to %d", link.MaxShards) }

func (s shards) set(v any) error {
	if n, ok := v.(int64); ok && n&(n-1) != 0 {
		return ErrValue
	}
	return s.integer.set(v)
}

func (s shards) text(t string) error {
	before := *s.to
	if err := s.integer.text(t); err != nil {
		return err
	}
	if *s.to&(*s.to-1) != 0 {
		*s.to = before
		return ErrValue
	}
	return nil
}

func path(to *string) value {
	return text(to, fmt.Sprintf("an absolute path of up to %d bytes", socket.MaxPath), func(s string) bool {
		return filepath.IsAbs(s) && len(s) <= socket.MaxPath && !strings.ContainsRune(s, 0)
	})
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' })
}

func deviceName(s string) bool {
	return len(s) < 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-:", r)
	})
}

// variable returns the name of the environment variable of a key:
// GOROCED_LIMITS_USER_QPS.
func variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

const envPrefix = "GOROCED_"
