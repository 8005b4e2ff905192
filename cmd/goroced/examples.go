package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// example is a command line, and what it does.
type example struct{ line, does string }

// examples has those of each command, by its name without goroced. They end its help, and are under EXAMPLES in its
// manual page.
var examples = map[string][]example{
	"bugreport": {
		{"goroced bugreport -o -", "read what would be sent"},
	},
	"capture": {
		{"goroced capture -o all.pcapng", "all packets, until Ctrl-C"},
		{"goroced capture --on-error -o error.pcapng", "what comes before the next failure"},
	},
	"cm": {
		{"goroced cm", "who listens, and who is connected to whom"},
	},
	"completion": {
		{"goroced completion bash", "for: source <(goroced completion bash)"},
	},
	"config check": {
		{"goroced config check /etc/goroce/goroced.toml", "before a reload"},
	},
	"config init": {
		{"goroced config init ~/.config/goroce/goroced.toml", "a file to begin with"},
	},
	"config show": {
		{"goroced config show --set limits.user.qps=100", "what that would change"},
	},
	"decode": {
		{"goroced decode all.pcapng", "each packet, and what became of it"},
		{"goroced decode --errors --ladder all.pcapng", "where it goes wrong, as a diagram"},
		{"goroced decode --json all.pcapng", "for programs; `goroced schema decode` says how"},
	},
	"demo": {
		{"goroced demo", "SEND, WRITE, READ and an atomic"},
		{"goroced demo --drop 0.05", "what becomes of lost packets"},
	},
	"devices": {
		{"goroced devices", "as ibv_devices prints them"},
	},
	"devinfo": {
		{"goroced devinfo -v", "all attributes and addresses"},
		{"goroced devinfo --list", "what could be opened"},
	},
	"docs": {
		{"goroced docs failures", "why a request has failed"},
	},
	"doctor": {
		{"goroced doctor", "this machine"},
		{"goroced doctor 192.0.2.7", "the way to a peer, too"},
	},
	"env": {
		{"goroced env", "for: eval \"$(goroced env)\""},
	},
	"explain": {
		{"goroced explain implied-nak", "a rule, by running it"},
		{"goroced explain psn", "the rules about PSNs"},
		{"goroced explain --course", "a course, for who knows TCP"},
	},
	"fault add": {
		{"goroced fault add drop -p 0.01 --for 1m", "lose one packet in a hundred, for a minute"},
		{"goroced fault add delay --delay 5ms --jitter 1ms --peer 192.0.2.7", "make one peer slow"},
		{"goroced fault add drop --burst-begin 0.001 --burst-end 0.1", "lose ten packets in a row now and then"},
		{"goroced fault add limit --rate 1G --buffer 2ms", "send through a link of 1 Gb/s with a queue of 2 ms"},
	},
	"fault clear": {
		{"goroced fault clear", "as if nothing had been"},
	},
	"fault list": {
		{"goroced fault list", "with what each has done"},
	},
	"help": {
		{"goroced help perf", "as goroced perf --help"},
	},
	"man": {
		{"goroced man ~/.local/share/man", "then: man goroced"},
	},
	"mr": {
		{"goroced mr", "who has registered what"},
	},
	"perf": {
		{"goroced perf write bw", "the server"},
		{"goroced perf write bw 192.0.2.7", "its client"},
		{"goroced perf serve", "a server that stays, for all tests"},
		{"goroced perf read bw -s 64K -q 4 192.0.2.7", "one of its clients"},
		{"goroced perf send lat -n 10000 --json 192.0.2.7", "a report for programs"},
	},
	"pingpong": {
		{"goroced pingpong", "the server"},
		{"goroced pingpong 192.0.2.7", "its client"},
		{"goroced pingpong serve", "a server that stays"},
		{"goroced pingpong --service ud -s 1024 -c 192.0.2.7", "its client: datagrams, with their data compared"},
	},
	"qp": {
		{"goroced qp --stats", "with traffic, congestion window, pace and round trip"},
		{"goroced qp --json", "with owners, too"},
	},
	"rping": {
		{"goroced rping -s -P", "the server, for many clients"},
		{"goroced rping -c -a 192.0.2.7 -C 3 -v", "its client"},
	},
	"rstream": {
		{"goroced rstream", "the server"},
		{"goroced rstream -s 192.0.2.7 -S all", "its client, with all sizes"},
	},
	"run": {
		{"goroced run -- ibv_devices", "a program of rdma-core"},
		{"goroced run -- ib_write_bw -x 192.0.2.1 192.0.2.7", "one of perftest, from the first address to the second"},
	},
	"schema": {
		{"goroced schema qp", "what goroced qp --json prints"},
	},
	"serve": {
		{"goroced serve", "with the addresses of the default route's interface"},
		{"goroced serve --netif eth1 --metrics 127.0.0.1:9471", "with those of another, and metrics"},
	},
	"stat": {
		{"goroced stat --watch", "what is counted, with rates"},
	},
	"status": {
		{"goroced status", "devices, users and traffic"},
		{"goroced status --json", "for programs"},
	},
	"stop": {
		{"goroced stop", "clients have the time of the setting drain"},
	},
	"top": {
		{"goroced top", "queue pairs, the busiest first"},
		{"goroced top -p -s resent -n 1", "processes, once, by what they sent again"},
	},
	"version": {
		{"goroced version --json", "for programs"},
	},
	"watch": {
		{"goroced watch --errors", "what goes wrong, as it happens"},
	},
	"why": {
		{"goroced why", "the last failures"},
		{"goroced why 0x4d6f12", "how a queue pair has failed"},
	},
}

// examplesTitle is before the examples in help.
const examplesTitle = "Examples:"

// addExamples adds the examples to the help of a command and of those below it.
func addExamples(n *kong.Node) {
	for _, c := range n.Children {
		addExamples(c)
	}
	list := examples[strings.TrimPrefix(n.FullPath(), "goroced ")]
	if len(list) == 0 {
		return
	}
	var b strings.Builder
	for _, e := range list {
		b.WriteString("  # " + e.does + "\n  " + e.line + "\n")
	}
	n.Detail = strings.TrimPrefix(n.Detail+"\n\n"+examplesTitle+"\n\n"+b.String(), "\n\n")
}
