//go:build linux

package main

import (
	"slices"
	"time"
)

// Programs of rdma-core and perftest: each, with every option in use.

// pong is the last line of a ping-pong.
const pong = ` iters in .* seconds = .* usec/iter`

var ibverbsUtils = &family{name: "ibverbs-utils", from: []string{"ibverbs-utils"}, rows: slices.Concat(
	[]row{
		{client: "ibv_devices", says: `{device}\s+[0-9a-f]{16}`, ci: true},
		{client: "ibv_devinfo -v", says: `(?s)hca_id:\s+{device}.*PORT_ACTIVE.*Ethernet.*, RoCE v2`, ci: true},
		{client: "ibv_devinfo -d {device} -i 1", says: `port:\s+1`},
		{client: "ibv_devinfo -l", says: `1 HCA found`},
		{client: "stdbuf -oL ibv_asyncwatch -d {device} >log & until grep FD log; do sleep 0.1; done; kill $!",
			program: "ibv_asyncwatch",
			says:    `async event FD`, ci: true},
	},
	variants(row{server: "ibv_rc_pingpong -g 0 {}", ready: "18515", says: pong, ci: true},
		"-c -e", "-c -N", "-t", "-N -t -o -P -s 1048576 -n 50"),
	variants(row{server: "ibv_rc_pingpong -g 0 {}", ready: "18515", says: pong}, "-c", "-O -n 100"),
	variants(row{server: "ibv_uc_pingpong -g 0 {}", ready: "18515", says: pong, ci: true}, ""),
	variants(row{server: "ibv_uc_pingpong -g 0 {}", ready: "18515", says: pong}, "-e", "-c -s 65536"),
	variants(row{server: "ibv_ud_pingpong -g 0 -s 1024 {}", ready: "18515", says: pong, ci: true}, ""),
	variants(row{server: "ibv_ud_pingpong -g 0 -s 1024 {}", ready: "18515", says: pong}, "-e", "-c"),
	variants(row{server: "ibv_srq_pingpong -g 0 {}", ready: "18515", says: pong, ci: true}, "-c -e"),
	variants(row{server: "ibv_srq_pingpong -g 0 {}", ready: "18515", says: pong}, "-q 4", "-o"),
	variants(row{server: "ibv_xsrq_pingpong -g 0 {}", ready: "18515", says: `(?m)^success$`, ci: true}, "-c 1"),
)}

// perftestRows returns rows of a tool with TCP, and by rdma_cm (-R).
func perftestRows(tool, says string, ci []string, options ...string) (list []row) {
	tcp := row{server: tool + " -F -x 0 {}", ready: "18515", says: says}
	list = variants(tcp, options...)
	tcp.ci = true
	list = append(list, variants(tcp, ci...)...)
	return append(list, row{server: tool + " -F -R -n 100", ready: listensCM, says: says, early: true,
		ci: tool == "ib_write_bw" || tool == "ib_send_lat"})
}

var perftest = &family{name: "perftest", from: []string{"perftest"}, rows: slices.Concat(
	perftestRows("ib_write_bw", `(?m)^ *(2|4096|8192|65536|8388608) +\d`,
		[]string{"-n 200 -W counters/port_xmit_data", "-q 64 -n 100 -s 4096"},
		"-a -n 5", "-b -n 200", "-q 4 -n 128", "-c UC -n 100", "-m 512 -n 100", "-D 1", "-t 16 -n 128", "-l 4 -n 100",
		"-I 64 -s 2 -n 200", "-s 8192 -N -n 100", "-Q 10 -n 100", "--report_gbits -n 100",
		"-u 16 -n 100", "-S 3 -n 100", "--tclass=96 -n 100", "--mmap=/dev/zero -n 100"),
	perftestRows("ib_read_bw", `(?m)^ *65536 +\d|(?m)^ *8388608 +5 `, []string{"-n 100"},
		"-a -n 5", "-b -n 100", "-q 4 -n 128", "-o 1 -n 100", "-D 1", "-e -n 100"),
	perftestRows("ib_send_bw", `(?m)^ *(1024|65536) +\d|(?m)^ *8388608 +5 `,
		[]string{"-b -e -n 200", "-c UD -s 1024 -n 500", "-c XRC -n 100"},
		"-a -n 5", "--use-srq -q 4 -n 100", "-c UC -s 1024 -n 100", "-q 4 -n 128", "-r 64 -n 200", "-D 1",
		"-I 64 -s 1024 -n 200"),
	perftestRows("ib_atomic_bw", `(?m)^ *8 +\d`, []string{"-n 200"}, "-A CMP_AND_SWAP -n 200", "-b -n 200",
		"-q 4 -n 128"),
	perftestRows("ib_write_lat", `(?m)^ *(2|8388608) +\d`, []string{"-n 200"}, "-a -n 5", "-c UC -n 200", "-D 1",
		"-H -n 100",
		"-U -n 100", "-I 64 -n 100"),
	perftestRows("ib_read_lat", `(?m)^ *2 +\d`, nil, "-n 200", "-a -n 5", "-e -n 100", "-o 1 -n 100"),
	perftestRows("ib_send_lat", `(?m)^ *2 +\d`, []string{"-n 200", "-n 2000 -e"}, "-a -n 5", "-c UD -n 200",
		"-c UC -n 200",
		"-c XRC -n 200", "--use-srq -n 200"),
	perftestRows("ib_atomic_lat", `(?m)^ *8 +\d`, nil, "-n 200", "-A CMP_AND_SWAP -n 200"),
	[]row{
		{server: "ib_send_bw -F -R -n 200 -c UD -s 1024", ready: listensCM, says: `(?m)^ *1024 `, early: true,
			ci: true},
		{server: "ib_write_bw -F -O -n 100", ready: "18515", says: `Unable to query port 2`, only: oneHost,
			fails: "a device has one port", whose: "ours"},
		{client: "raw_ethernet_bw -d {device} --client -n 100 -B 02:00:00:00:00:01 -E 02:00:00:00:00:02",
			says: "(?i)couldn't|failed|not support|unable", only: oneHost, root: true, fails: "raw packets",
			whose: "ours: not offered"},
	},
)}

var rdmacmUtils = &family{name: "rdmacm-utils", from: []string{"rdmacm-utils"}, rows: []row{
	{server: "rping -s -a {server} -C 20 -v -V", client: "rping -c -a {server} -C 20 -v -V", ready: listensCM,
		says: `(?m)^ping data: rdma-ping-19: `, ci: true},
	{server: "rping -s -a {server} -C 1000 -V", client: "rping -c -a {server} -C 1000 -V", ready: listensCM},
	{server: "rping -s -P -a {server}", client: "rping -c -a {server} -C 5 -v -V", ready: listensCM,
		says: `(?m)^ping data: rdma-ping-4: `, stays: true, ci: true},
	{server: "rping -s -C 5", client: "rping -c -a {server} -I {client} -C 5 -v", ready: listensCM,
		says: `(?m)^ping data: rdma-ping-4: `, ci: true},
	{server: "rping -s -a {server} -C 5 -S 4096", client: "rping -c -a {server} -C 5 -S 4096 -V", ready: listensCM},
	{server: "ucmatose -c 100 -b {server}", client: "ucmatose -c 100 -s {server} -b {client}", ready: listensCM,
		says: `return status 0`, ci: true},
	{server: "ucmatose -c 5 -m", client: "ucmatose -c 5 -s {server} -m", ready: listensCM, says: `return status 0`,
		ci: true},
	{server: "rdma_server", client: "rdma_client -s {server}", ready: listensCM, says: `end 0`, ci: true},
	{server: "rdma_xserver -c r", client: "rdma_xclient -s {server} -c r", ready: listensCM, says: `end 0`, ci: true},
	{server: "rdma_xserver -c x", client: "rdma_xclient -s {server} -c x", ready: listensCM, says: `end 0`, ci: true},
	{server: "udaddy -c 3 -b {server}", client: "udaddy -c 3 -s {server} -b {client}", ready: listensCM,
		says: `return status 0`, ci: true},
	{server: "cmtime -b {server} -c 200", client: "cmtime -s {server} -c 200", ready: listensCM, says: `(?m)^destroy `,
		stays: true, ci: true},
	{server: "cmtime -b {server} -c 1000", client: "cmtime -s {server} -c 1000", ready: listensCM,
		says:  `(?m)^destroy `,
		stays: true},
	{server: "stdbuf -oL mckey -m 239.1.2.3 -b {server} -C 5",
		client: "for i in 1 2 3 4 5; do mckey -m 239.1.2.3 -b {client} -C 5 -s; " +
			"done", program: "mckey", says: `return status 0`, only: twoHosts, ready: "joined dgid", ci: true},
	{server: "rstream -b {server} -S 65536 -C 200 -T v", client: "rstream -s {server} -S 65536 -C 200 -T v",
		ready: listensCM, says: `(?m)^custom +64k +200 `, ci: true},
	{server: "rstream -b {server} -S 65536 -C 100 -T n -T v", client: "rstream -s {server} -S 65536 -C 100 -T n -T v",
		ready: listensCM, says: `(?m)^custom +64k +100 `, ci: true},
	{server: "rstream -b {server}", client: "rstream -s {server}", ready: listensCM, says: `(?m)^4m_bw|1m_bw`,
		only: oneHost, limit: 5 * time.Minute},
	{server: "riostream -b {server} -S 65536 -C 100", client: "riostream -s {server} -S 65536 -C 100", ready: listensCM,
		says: `(?m)^custom +64k +100 `, ci: true},
	{server: "rcopy", client: "head -c 128M /dev/urandom >file && rcopy file {server}:{dir}/copy && cmp file " +
		"copy && echo same",
		program: "rcopy", ready: listensCM, says: `(?m)^same$`, stays: true, ci: true, limit: 3 * time.Minute},
	{server: "udpong -b {server}", client: "udpong -s {server} -C 10", ready: "7174",
		says: `rconnect: No such file or directory`, stays: true, only: twoHosts,
		fails: "rsockets make address handles without a GRH, with rdma_rxe too", whose: "librdmacm's"},
	{server: "rping -s -a {server6} -C 20 -v -V", client: "rping -c -a {server6} -C 20 -v -V", ready: listensCM,
		says: `(?m)^ping data: rdma-ping-19: `, only: twoHosts, ci: true},
	{server: "ucmatose -f ip6 -c 20 -b {server6}", client: "ucmatose -f ip6 -c 20 -s {server6}", ready: listensCM,
		says: `return status 0`, only: twoHosts, ci: true},
	{server: "udaddy -f ip6 -c 3 -b {server6}", client: "udaddy -f ip6 -c 3 -s {server6}", ready: listensCM,
		says: `return status 0`, only: twoHosts, ci: true},
	{server: "rstream -f ip6 -b {server6} -S 65536 -C 100", client: "rstream -f ip6 -s {server6} -S 65536 -C 100",
		ready: listensCM, says: `(?m)^custom +64k +100 `, only: twoHosts, ci: true},
}}

// umad is why programs of InfiniBand's management do not work.
const umad = "it sends MADs by /dev/infiniband/umad*, which RoCE ports do not have: there is no subnet manager"

var diags = &family{name: "infiniband-diags", from: []string{"infiniband-diags"}, rows: []row{
	{client: "ibstat", says: `(?s)CA '{device}'.*State: Active.*Physical state: LinkUp.*Link layer: Ethernet`,
		ci: true},
	{client: "ibstat -l", says: `(?m)^{device}$`, ci: true},
	{client: "ibstatus", says: `(?s)'{device}' port 1 status:.*state:.*4: ACTIVE.*link_layer:.*Ethernet`, ci: true},
	{client: "ibaddr", says: `.`, only: oneHost, fails: umad, whose: "RoCE's"},
	{client: "ibnetdiscover", says: `.`, only: oneHost, fails: umad, whose: "RoCE's"},
	{client: "perfquery", says: `.`, only: oneHost, fails: umad, whose: "RoCE's"},
	{client: "sminfo", says: `.`, only: oneHost, fails: umad, whose: "RoCE's"},
}}

var management = &family{name: "InfiniBand management", from: []string{"ibacm", "opensm", "srptools", "ibsim-utils",
	"mstflint"},
	rows: []row{
		{client: "opensm -o | grep 'Entering MASTER state'", says: `exit status 1`, only: oneHost, root: true,
			fails: umad, whose: "RoCE's"},
		{client: "ibsrpdm -c", says: `.`, only: oneHost, root: true, fails: umad, whose: "RoCE's"},
		{client: "ib_acme -s {server} -d {server}", says: `.`, only: oneHost,
			fails: "ibacm resolves InfiniBand paths by MADs",
			whose: "RoCE's"},
		{client: "mstflint -d {device} query", says: `.`, only: oneHost, root: true,
			fails: "it reads the firmware of a PCI device of one vendor",
			whose: "the program's: there is no such device"},
	}}
