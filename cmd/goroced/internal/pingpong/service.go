package pingpong

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Service is a transport service, with a C tool of its own.
type Service int

// The services.
const (
	RC  Service = iota // reliable connection: ibv_rc_pingpong
	UC                 // unreliable connection: ibv_uc_pingpong
	UD                 // unreliable datagrams: ibv_ud_pingpong
	SRQ                // reliable connections on a shared receive queue: ibv_srq_pingpong
)

// traits are the differences between the services.
type traits struct {
	name, tool string
	qpType     ib.QPType
	shared     bool // queue pairs share a receive queue
	datagrams  bool // each SEND names its destination

	size  int    // default bytes of a message
	mtu   ib.MTU // default path MTU; 0 where a message is one packet
	numQP int    // default queue pairs

	lines    int  // addresses that the ends exchange
	headroom int  // bytes before the message where it arrives
	fill     byte // byte that messages are filled with

	agree   string // options that must be equal at both ends
	silence string // possible causes if nothing arrives
}

// maxQP limits the queue pairs of an end: the C tool always exchanges srqLines addresses, and supports one queue pair
// less.
const (
	srqLines = 256
	maxQP    = srqLines - 1
)

// qkey is the C tool's Q_Key.
const qkey = 0x11111111

var services = [...]traits{
	RC: {
		name: "rc", tool: "ibv_rc_pingpong", qpType: ib.RC,
		size: 4096, mtu: ib.MTU1024, numQP: 1, lines: 1, fill: 0x7B,
		agree: "size (-s) and path MTU (-m)",
	},
	UC: {
		name: "uc", tool: "ibv_uc_pingpong", qpType: ib.UC,
		size: 4096, mtu: ib.MTU1024, numQP: 1, lines: 1, fill: 0x7B,
		agree:   "size (-s) and path MTU (-m)",
		silence: "UC does not retransmit, so one lost packet stops the ping-pong: start both ends again",
	},
	UD: {
		name: "ud", tool: "ibv_ud_pingpong", qpType: ib.UD, datagrams: true,
		size: 1024, numQP: 1, lines: 1, headroom: ib.GRHLen, fill: 0x7B,
		agree:   "size (-s)",
		silence: "UD does not retransmit, so one lost packet stops the ping-pong: start both ends again",
	},
	SRQ: {
		name: "srq", tool: "ibv_srq_pingpong", qpType: ib.RC, shared: true,
		size: 4096, mtu: ib.MTU1024, numQP: 16, lines: srqLines, fill: 0,
		agree: "size (-s), path MTU (-m) and number of queue pairs (-q)",
	},
}

func (s Service) traits() *traits { return &services[s] }

// String returns the service's name: "rc".
func (s Service) String() string {
	if s < 0 || int(s) >= len(services) {
		return fmt.Sprintf("Service(%d)", int(s))
	}
	return services[s].name
}

// UnmarshalText parses a name.
func (s *Service) UnmarshalText(name []byte) error {
	for i := range services {
		if services[i].name == string(name) {
			*s = Service(i)
			return nil
		}
	}
	return driver.Refuse("pingpong", "Service", string(name), ServiceNames(), ib.ErrInvalid)
}

// ServiceNames returns all names, for errors.
func ServiceNames() string {
	var names []string
	for i := range services {
		names = append(names, services[i].name)
	}
	return strings.Join(names, ", ")
}
