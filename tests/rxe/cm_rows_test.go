package rxe

import "fmt"

// cmTool is a program for connections by address, and its counterpart at our end. In the
// command lines $HOST is our address, $VM the guest's; ours get --link and --addr as well.
type cmTool struct {
	name           string
	server, client string // the tool, in the guest
	ourServer      string
	ourClient      string
	port           int    // on which the tool's server listens
	ready          string // shell condition: the server is ready, if it listens on no port
	ourReady       string // the same for a server over the library at our end
	only4          bool   // the tool's server supports IPv4 only
	stays          bool   // servers do not end by themselves
	long           bool   // takes minutes
	unsure         bool   // the client may end before rdma_rxe has sent anything: it runs until our end has received it
	early          string // what the client says that has come before the server listens: both are tried again
	said           string // regular expression for the output of the tool's client on success
	weSay          string // our output on success
}

// cmTools are the tools of librdmacm. rping miscounts the bytes of its last ping and allows
// 65535 at most. It may end before its thread has printed DISCONNECT EVENT; everything else
// that it prints is an error.
var cmTools = []cmTool{
	{name: "rping", port: 7174,
		server: "rping -s -a $VM -C 100 -S 65535 -V", client: "rping -c -a $HOST -C 100 -S 65535 -V",
		ourServer: "goroced rping -s -a $HOST -S 65535", ourClient: "goroced rping -c -a $VM -C 100 -S 65535 -V",
		said: `^(client DISCONNECT EVENT\.\.\.\n)?$`, weSay: "DISCONNECT EVENT"},
	{name: "ucmatose", port: 7471,
		server: "ucmatose -b $VM -c 5", client: "ucmatose -s $HOST -c 5",
		ourServer: "cmpeer ucmatose -c 5", ourClient: "cmpeer ucmatose -c 5 $VM",
		said: "return status 0", weSay: "5 connections"},
	{name: "udaddy", port: 7174,
		server: "udaddy -b $VM -c 3", client: "udaddy -s $HOST -c 3",
		ourServer: "cmpeer udaddy -c 3", ourClient: "cmpeer udaddy -c 3 $VM",
		said: "return status 0", weSay: "ok"},
	{name: "rdma_client", port: 7471, only4: true,
		server: "rdma_server", client: "rdma_client -s $HOST",
		ourServer: "cmpeer message", ourClient: "cmpeer message $VM",
		said: "end 0", weSay: "1 connections"},
	{name: "rstream", port: 7471,
		server: "rstream -b $VM -S 65536 -I 2 -C 5 -T v", client: "rstream -s $HOST -S 65536 -I 2 -C 5 -T v",
		ourServer: "goroced rstream -b $HOST -S 65536 -I 2 -C 5 -T v",
		ourClient: "goroced rstream -s $VM -S 65536 -I 2 -C 5 -T v",
		said:      "custom", weSay: "custom"},
	{name: "riostream", port: 7471,
		server: "riostream -b $VM -S 65536 -I 2 -C 5 -T v", client: "riostream -s $HOST -S 65536 -I 2 -C 5 -T v",
		ourServer: "goroced rstream --iomap -b $HOST -S 65536 -I 2 -C 5 -T v",
		ourClient: "goroced rstream --iomap -s $VM -S 65536 -I 2 -C 5 -T v",
		said:      "custom", weSay: "custom"},
}

// mckeyTool joins a multicast group at both ends; the client sends. Over RoCEv2 Linux joins
// IPv4 groups only (cma_iboe_join_multicast). The tool ends as soon as it has posted, and on
// 6.12 rdma_rxe drops unsent packets of its work queue with the QP: one datagram in ten.
var mckeyTool = cmTool{name: "mckey",
	server: "mckey -m 224.10.10.10 -b $VM", client: "mckey -s -C 1 -m 224.10.10.10 -b $VM",
	ourServer: "cmpeer mckey -C 1 224.10.10.10", ourClient: "cmpeer mckey -s 224.10.10.10",
	ready: joined, unsure: true,
	said: "return status 0", weSay: "ok"}

// joined is a shell condition: the machine receives what is sent to the group. It does once a QP is attached.
const joined = "ip maddr show | grep -q 01:00:5e:0a:0a:0a"

// Many connections without data. If they are concurrent the server closes them when all are
// established; if they are consecutive the client closes each.
var (
	manyAtOnce = cmTool{name: "at-once", port: 7471,
		server: "ucmatose -b $VM -c 200 -C 0", client: "ucmatose -s $HOST -c 200 -C 0",
		ourServer: "cmpeer churn --timeout 80s -n 200 --hold",
		ourClient: "cmpeer churn --timeout 80s -n 200 --hold --at-once $VM",
		said:      "return status 0", weSay: "200 connections"}
	manyInARow = cmTool{name: "in-a-row", port: 7174,
		server: "cmtool tcp serve 7174 1000", client: "cmtool tcp churn $HOST 7471 1000",
		ourServer: "cmpeer churn --timeout 80s -n 1000", ourClient: "cmpeer churn --timeout 80s -p 7174 -n 1000 $VM",
		said: "1000 connections", weSay: "1000 connections"}
)

// cmRow is one run of a tool against our end.
type cmRow struct {
	*cmTool
	side, link, family string
	loss               float64 // percent of the connection managers' packets
}

func (r cmRow) tool() string { return r.name }

// line names the row.
func (r cmRow) line() string {
	return fmt.Sprintf("%s-%s-%s-%s-loss%g", r.name, r.side, r.link, r.family, r.loss)
}

func cmRows() []cmRow {
	var rows []cmRow
	for i := range cmTools {
		tool := &cmTools[i]
		rows = append(rows, cmRow{tool, client, udp, v4, 0}, cmRow{tool, server, udp, v4, 0},
			cmRow{tool, server, udp, v6, 0}, cmRow{tool, client, rawsock, v4, 0})
		if !tool.only4 {
			rows = append(rows, cmRow{tool, client, udp, v6, 0})
		}
	}
	return append(rows,
		cmRow{&mckeyTool, client, udp, v4, 0}, cmRow{&mckeyTool, server, udp, v4, 0},
		cmRow{&mckeyTool, client, rawsock, v4, 0},
		cmRow{&manyInARow, client, udp, v4, 0}, cmRow{&manyInARow, server, udp, v4, 0},
		cmRow{&manyAtOnce, client, udp, v4, 0}, cmRow{&manyAtOnce, server, udp, v4, 0},
		cmRow{&manyAtOnce, client, udp, v4, 5}, cmRow{&manyAtOnce, server, udp, v4, 5},
		cmRow{&manyAtOnce, client, udp, v6, 5}, cmRow{&manyAtOnce, server, udp, v6, 5})
}
