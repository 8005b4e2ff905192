package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/link"
)

// setting is a key of the configuration.
type setting struct {
	key   string // as in the file: "limits.user.qps"
	live  bool   // a reload can change it
	value value
}

// maxCount limits counts of objects: QP numbers have 24 bits.
const maxCount = 1 << 24

// settings lists all keys but those of devices, bound to c.
func settings(c *Config) []setting {
	return append(append([]setting{
		{"socket", false, path(&c.Socket)},
		{"admin", false, path(&c.Admin)},
		{"socket_mode", false, permissions(&c.SocketMode)},
		{"socket_group", false, group(&c.SocketGroup)},
		{"drain", true, duration(&c.Drain, time.Hour)},
		{"idle_exit", false, duration(&c.IdleExit, 24*time.Hour)},
		{"administrator", false, choice(&c.Administrator, "own", "none")},
		{"limits.user.connections", true, number(&c.User.Connections, maxCount)},
		{"limits.user.cm_ids", true, number(&c.User.CMIDs, maxCount)},
		{"limits.user.cm_listeners", true, number(&c.User.CMListeners, maxCount)},
		{"limits.user.cm_half_open", true, number(&c.User.CMHalfOpen, maxCount)},
		{"limits.user.cm_backlog", true, number(&c.User.CMBacklog, maxCount)}},
		append(limits("limits.user.", &c.User.Limits), limits("limits.connection.", &c.Connection)...)...),
		setting{"memory.own_processes", true, boolean(&c.OwnProcesses)},
		setting{"memory.other_processes", true, boolean(&c.OtherProcesses)},
		setting{"log.level", true, level(&c.LogLevel)},
		setting{"log.format", false, choice(&c.LogFormat, "text", "json")},
		setting{"metrics.listen", false, listen(&c.Metrics)},
		setting{"metrics.public", false, boolean(&c.MetricsPublic)},
		setting{"metrics.pprof", false, boolean(&c.MetricsProfiles)},
	)
}

func limits(prefix string, l *Limits) []setting {
	return []setting{
		{prefix + "qps", true, number(&l.QPs, maxCount)},
		{prefix + "mrs", true, number(&l.MRs, maxCount)},
		{prefix + "mws", true, number(&l.MWs, maxCount)},
		{prefix + "cqs", true, number(&l.CQs, maxCount)},
		{prefix + "cq_entries", true, number(&l.CQEntries, 1<<30)},
		{prefix + "pds", true, number(&l.PDs, maxCount)},
		{prefix + "srqs", true, number(&l.SRQs, maxCount)},
		{prefix + "ahs", true, number(&l.AHs, maxCount)},
		{prefix + "xrcds", true, number(&l.XRCDs, maxCount)},
		{prefix + "channels", true, number(&l.Channels, maxCount)},
		{prefix + "pinned", true, bytesize(&l.Pinned)},
		{prefix + "heap", true, bytesize(&l.Heap)},
	}
}

// deviceSettings lists the keys of a device, bound to d. prefix is "device[0].", or "device." if there can be only one.
func deviceSettings(prefix string, d *Device) []setting {
	return []setting{
		{prefix + "name", false, deviceName(&d.Name)},
		{prefix + "link", false, choice(&d.Link, "auto", "udp", "rawsock", "afxdp")},
		{prefix + "netif", false, netif(&d.NetIf)},
		{prefix + "addresses", false, addresses(&d.Addresses)},
		{prefix + "shards", false, shards(&d.Shards)},
		{prefix + "pin_source_port", false, boolean(&d.PinPorts)},
		{prefix + "congestion", false, choice(&d.Congestion, "cubic", "dcqcn")},
	}
}

// shards is 0 or a power of two.
func shards(to *int) value {
	return count(to, fmt.Sprintf("0, or a power of two up to %d", link.MaxShards), func(n int) bool {
		return n >= 0 && n <= link.MaxShards && n&(n-1) == 0
	})
}

func path(to *string) value {
	allowed := fmt.Sprintf("an absolute path of up to %d bytes, without control characters", socket.MaxPath)
	return text(to, allowed, func(s string) bool {
		return filepath.IsAbs(s) && len(s) <= socket.MaxPath && !strings.ContainsFunc(s, unicode.IsControl)
	})
}

func group(to *string) value {
	return text(to, `a group's name or number, or "" for the daemon's own`, printable)
}

func netif(to *string) value {
	return text(to, "the name of a network interface", func(s string) bool { return len(s) < 16 && printable(s) })
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' })
}

func deviceName(to *string) value {
	const allowed = `up to 63 letters, digits, and _ . - :, or "" for a name after the interface`
	return text(to, allowed, func(s string) bool {
		return len(s) < 64 && !strings.ContainsFunc(s, func(r rune) bool {
			return !isBareKey(r) && r != '.' && r != ':'
		})
	})
}

// variable returns the name of the environment variable of a key:
// GOROCED_LIMITS_USER_QPS.
func variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

const envPrefix = "GOROCED_"
