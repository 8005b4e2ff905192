// Package config is the daemon's configuration. Settings come from, in order of increasing precedence, defaults, a file
// in TOML, the environment (GOROCED_...) and the command line. All of these are optional. An unknown key, a value of
// the wrong type and a value that is not allowed are an [Error] each, which names the place and what is allowed.
//
// The TOML decoder and the parser of the command line only provide keys, texts and lines: decoding into tagged
// structures would stop at the first problem, and would not tell where a valid value comes from, which `goroced config
// show` prints.
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/machine"
)

// Config is a configuration. Those of [Load] are complete and valid.
type Config struct {
	Socket      string      // path of the socket for clients (SEQPACKET)
	Admin       string      // path of the admin socket (HTTP)
	SocketMode  fs.FileMode // permissions of both; users with write permission may connect
	SocketGroup string      // group of both, name or number; "" is the daemon's own

	// Drain is how long the daemon waits for clients to disconnect when it ends.
	Drain time.Duration

	// IdleExit is how long the daemon goes on without a client; 0 is for ever.
	IdleExit time.Duration

	Devices []Device // never empty

	User       UserLimits // of all connections of a user in total
	Connection Limits     // of each connection

	// OwnProcesses lets processes of the daemon's own user register any of their memory. OtherProcesses lets those of
	// other users do so.
	OwnProcesses   bool
	OtherProcesses bool

	// Administrator says who may have ports below 1024 and privileged Q_Keys, and whose processes the daemon reaches by
	// the right to ptrace: "own" are root and the daemon's own user, "none" is nobody. Where every container has a root
	// of its own, root is nobody special.
	Administrator string

	LogLevel  slog.Level
	LogFormat string // "text" or "json"

	// Metrics is the address that serves metrics and health; the zero value is none. It must be a loopback address
	// unless MetricsPublic is set.
	Metrics       netip.AddrPort
	MetricsPublic bool
	// MetricsProfiles serves profiles at Metrics, too, to whoever reaches it. It excludes MetricsPublic.
	MetricsProfiles bool

	origins map[string]origin // by key; defaults are not in it
}

// origin is the source of a value.
type origin struct {
	source string
	line   int
}

// Device is a device to open, with the fields of host.Options. The zero value is a device on the interface of the
// default route.
type Device struct {
	Name      string // "" stands for a name made of its interface's
	Link      string // "auto", "udp", "rawsock" or "afxdp"
	NetIf     string // the device has its addresses; excludes Addresses
	Addresses []netip.Addr
	Shards    int  // 0 takes what suits the machine
	PinPorts  bool // roce.Options.PinSourcePort

	Congestion string // "cubic" or "dcqcn"
}

// Limits limit the objects that can exist at a time.
type Limits struct {
	QPs, MRs, MWs, CQs, CQEntries, PDs, SRQs, AHs, XRCDs int
	Channels                                             int   // completion event channels
	Pinned                                               int64 // bytes: memory that is registered as memfds, and rings
	Heap                                                 int64 // bytes that the daemon takes for all of these
}

// UserLimits are Limits, the number of connections, and limits for the connection manager of each device: IDs, those of
// them that listen, half-open requests of peers, and requests that a listener has not read.
type UserLimits struct {
	Connections                               int
	CMIDs, CMListeners, CMHalfOpen, CMBacklog int
	Limits
}

// defaults returns the values of the settings that no file, variable or flag sets. Root's daemon is for a group of
// users, an ordinary user's is for that user. Limits of memory and of connections follow from the machine's memory and
// descriptors.
func defaults(uid int, getenv func(string) string, m machine.Capacity) *Config {
	paths := socket.Default(uid, getenv)
	c := &Config{
		Socket: paths.Client, Admin: paths.Admin, SocketMode: 0o600,
		Drain: 10 * time.Second,
		User: UserLimits{int(min(max(m.Descriptors/16, 16), 1024)), 1 << 16, 1 << 12, 1 << 12, 1 << 12,
			Limits{QPs: 1 << 15, MRs: 1 << 18, MWs: 1 << 18, CQs: 1 << 15, CQEntries: 1 << 24, PDs: 1 << 14,
				SRQs: 1 << 14,
				AHs:  1 << 18, XRCDs: 1 << 12, Channels: 1 << 14, Pinned: part(m.Memory, 2), Heap: part(m.Memory, 8)}},
		Connection: Limits{QPs: 1 << 14, MRs: 1 << 16, MWs: 1 << 16, CQs: 1 << 13, CQEntries: 1 << 22, PDs: 1 << 12,
			SRQs: 1 << 12,
			AHs:  1 << 16, XRCDs: 1 << 10, Channels: 1 << 12, Pinned: part(m.Memory, 4), Heap: part(m.Memory, 16)},
		OwnProcesses: true, Administrator: "own",
		LogLevel: slog.LevelInfo, LogFormat: "text",
		origins: map[string]origin{},
	}
	if uid == 0 {
		c.SocketMode = 0o660
	}
	return c
}

// part returns the nth part of so many bytes, in whole MiB, and 16 MiB at least.
func part(bytes, n int64) int64 { return max(bytes/n>>20, 16) << 20 }
