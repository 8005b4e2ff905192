// Package config is the daemon's configuration. The value of a setting comes from, in
// rising order of strength, the defaults, a file in TOML, the environment (GOROCED_...)
// and the command line. None of the three is needed. An unknown key, a value of the wrong
// type and a value that is not allowed are an [Error] each, which names the place and
// what is allowed.
//
// The TOML decoder and the parser of the command line only deliver keys with texts and
// lines: decoding into tagged structures would stop at the first mistake, and would not
// know where a good value comes from, which `goroced config show` tells.
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/config/socket"
)

// Config is what the daemon runs with. [Load] makes one that is complete and checked.
type Config struct {
	Socket      string      // path of the socket that clients connect to (SEQPACKET)
	Admin       string      // path of the socket for looking at the daemon (HTTP)
	SocketMode  fs.FileMode // permissions of both: who may write may connect
	SocketGroup string      // group of both, name or number; "" is the daemon's own

	// Drain is how long the daemon waits for its clients to leave when it is told to
	// end.
	Drain time.Duration

	Devices []Device // never empty

	User       UserLimits // of all connections of a user together
	Connection Limits     // of each connection

	// OwnProcesses lets processes of the daemon's own user register any of their
	// memory, OtherProcesses those of other users.
	OwnProcesses   bool
	OtherProcesses bool

	LogLevel  slog.Level
	LogFormat string // "text" or "json"

	// Metrics is where metrics, health and profiles are served; the zero value is
	// nowhere. It is a loopback address unless MetricsPublic.
	Metrics       netip.AddrPort
	MetricsPublic bool

	origins map[string]origin // by key; what is not here is a default
}

// origin is the place of an [Error].
type origin struct {
	source string
	line   int
}

// Device is a device to open; the fields are those of host.Options. The zero value is
// one on the interface of the default route.
type Device struct {
	Name      string // "" names it after its interface
	Link      string // "auto", "udp", "rawsock" or "afxdp"
	NetIf     string // its addresses are the device's; excludes Addresses
	Addresses []netip.Addr
	Shards    int  // 0 takes what suits the machine
	PinPorts  bool // roce.Options.PinSourcePort
}

// Limits bound what can be held at a time.
type Limits struct {
	QPs, MRs, MWs, CQEntries, PDs, SRQs, AHs, XRCDs int
	Channels                                        int   // completion event channels
	Pinned                                          int64 // bytes: memory that is registered as memfds, and rings
}

// UserLimits are Limits, how many connections there may be, and what of the connection
// manager of each device: IDs, requests of peers that are half open, and those that a
// listener has not read.
type UserLimits struct {
	Connections                  int
	CMIDs, CMHalfOpen, CMBacklog int
	Limits
}

// defaults returns the configuration of a daemon that nothing else is said to. Root's
// daemon is for a group of users, an ordinary user's is for that user.
func defaults(uid int, getenv func(string) string) *Config {
	paths := socket.Default(uid, getenv)
	c := &Config{
		Socket: paths.Client, Admin: paths.Admin, SocketMode: 0o600,
		Drain: 10 * time.Second,
		User: UserLimits{1024, 1 << 16, 1 << 12, 1 << 12, Limits{QPs: 1 << 15, MRs: 1 << 18, MWs: 1 << 18, CQEntries: 1 << 22,
			PDs: 1 << 14, SRQs: 1 << 14, AHs: 1 << 18, XRCDs: 1 << 12, Channels: 1 << 14, Pinned: 16 << 30}},
		Connection: Limits{QPs: 1 << 13, MRs: 1 << 16, MWs: 1 << 16, CQEntries: 1 << 20,
			PDs: 1 << 12, SRQs: 1 << 12, AHs: 1 << 16, XRCDs: 1 << 10, Channels: 1 << 12, Pinned: 8 << 30},
		OwnProcesses: true,
		LogLevel:     slog.LevelInfo, LogFormat: "text",
		origins: map[string]origin{},
	}
	if uid == 0 {
		c.SocketMode = 0o660
	}
	return c
}
