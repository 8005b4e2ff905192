package soak

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/goroce/goroce/tests/require"
)

// pair is two programs in C that speak with each other, a few seconds each time.
type pair struct {
	server, client string
	says           string // what the client prints if all is well, a regular expression
	badly          string // what an end prints if data is wrong
}

// pairs are the programs. {server} is the address of the server's host.
var pairs = []pair{
	{"rping -s -a {server} -p 7480 -C 300 -S 20000 -V", "rping -c -a {server} -p 7480 -C 300 -S 20000 -V", ``,
		`data mismatch`},
	{"rstream -b {server} -p 7481 -S 30000 -C 200 -T v", "rstream -s {server} -p 7481 -S 30000 -C 200 -T v",
		`(?m)^custom `, `data verification failed`},
	{"ib_write_bw -R -F -p 7482 -s 8192 -n 1000 -q 2", "ib_write_bw -R -F -p 7482 -s 8192 -n 1000 -q 2 {server}",
		`(?m)^ *8192 `, ``},
	{"ib_send_bw -R -F -p 7483 -s 4000 -n 1000", "ib_send_bw -R -F -p 7483 -s 4000 -n 1000 {server}",
		`(?m)^ *4000 `, ``},
	{"ib_atomic_bw -R -F -p 7484 -n 500", "ib_atomic_bw -R -F -p 7484 -n 500 {server}", `(?m)^ *8 `, ``},
}

// tooEarly is what clients of perftest say when they come before their servers listen, which ask them to come by a
// handshake of their own.
var tooEarly = regexp.MustCompile(`RDMA CM event error|Event rejected`)

// pairTime is how long a run of a pair may take. An end whose peer has gone without a word may wait for ever.
const pairTime = 30 * time.Second

// keepPair runs a pair again and again, servers and clients on either host in turn, until the soak is over.
func (s *soak) keepPair(p pair) {
	name, _, _ := strings.Cut(p.client, " ")
	require.Command(s, name)
	s.keepers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-s.over:
				return
			default:
			}
			s.runPair(name, &p, s.hosts[i%2], s.hosts[1-i%2])
		}
	})
}

func (s *soak) runPair(name string, p *pair, on, from *host) {
	s.pairs.RLock()
	defer s.pairs.RUnlock()
	command := func(line string) []string {
		return strings.Fields(strings.ReplaceAll(line, "{server}", on.ns.Addr4.String()))
	}
	began := time.Now()
	server := start(s, on.ns, on.inC(command(p.server)...))
	defer server.kill()
	for !on.listens(server.pid) {
		if server.within(20*time.Millisecond) || time.Since(began) > pairTime {
			s.judgePair(name+" -s on "+on.name, p, server, began)
			return
		}
	}
	client := start(s, from.ns, from.inC(command(p.client)...))
	defer client.kill()
	for !client.within(100 * time.Millisecond) {
		select {
		case <-s.over:
			return
		default:
		}
		if time.Since(began) > pairTime {
			break
		}
	}
	s.judgePair(fmt.Sprintf("%s from %s to %s", name, from.name, on.name), p, client, began)
	if p.badly != "" && strings.Contains(server.out.String(), p.badly) {
		s.failed(entry{at: time.Now(), who: name + " -s on " + on.name, kind: wrongData, text: server.out.String()})
	}
}

// judgePair notes how an end of a pair has ended. One that waits is no failure if something has happened since it
// began, of which it has not been told.
func (s *soak) judgePair(who string, p *pair, end *process, began time.Time) {
	out := end.out.String()
	switch {
	case p.badly != "" && strings.Contains(out, p.badly):
		s.failed(entry{at: time.Now(), who: who, kind: wrongData, text: out})
	case !end.ended() && s.ledger.quiet(began):
		s.failed(entry{at: time.Now(), who: who, kind: other, text: "it does not end: " + out})
	case !end.ended():
		s.count("pairs that waited for ever")
	case isExit(end.err) && tooEarly.MatchString(out):
	case end.err != nil || !regexp.MustCompile(p.says).MatchString(out):
		if s.ledger.quiet(began) {
			s.failed(entry{at: time.Now(), who: who, kind: other, text: fmt.Sprintf("%v: %s", end.err, out)})
		}
		s.count("pairs that failed")
	default:
		s.count("pairs that ended well")
	}
}

func isExit(err error) bool {
	_, ok := err.(*exec.ExitError)
	return ok
}
