//go:build linux

package main

import "time"

// Services and their clients: streams over rsockets, storage, and what only looks at devices.

// big makes the file that goes through a stream.
const big = "head -c 64M /dev/urandom >{dir}/file"

// noEpoll is why most services do not run over rsockets.
const noEpoll = "librspreload does not know epoll"

var rsockets = &family{name: "TCP programs over rsockets", from: []string{"librdmacm1", "netcat-traditional",
	"civetweb", "wget",
	"iperf", "redis-server", "redis-tools", "memcached", "nginx-light", "curl", "apache2-utils", "socat", "iperf3"},
	also: "`LD_PRELOAD=.../rsocket/librspreload.so.1` stands before `goroced run`; connections go by `rdma_cm`.",
	rows: []row{
		{setup: big, server: "nc.traditional -l -p 7777 >copy; cmp file copy", streams: true, ready: listensCM,
			client: "nc.traditional -q 0 {server} 7777 <file; true", program: "nc.traditional"},
		{setup: big, server: "civetweb -listening_ports 7780 -document_root {dir}", streams: true, ready: listensCM,
			client:  "wget -q -O copy http://{server}:7780/file && cmp file copy && echo same",
			program: "wget, civetweb",
			says:    "same", stays: true},
		{server: "iperf -s", client: "iperf -c {server} -n 200M", streams: true, ready: listensCM, stays: true,
			says: `200 MBytes`, network: true},
		{server: "redis-server --bind {server} --port 6379 --save ''", client: "redis-cli -h {server} ping",
			streams: true, ready: "error creating",
			says: "error creating TCP socket accept handler", limit: 15 * time.Second,
			only: oneHost, program: "redis-server", fails: noEpoll, whose: "librdmacm's"},
		{server: "memcached -l {server} -u nobody", client: "curl -s telnet://{server}:11211", streams: true,
			ready: "Epoll ADD", program: "memcached", says: "Epoll ADD.*Operation not permitted",
			limit: 15 * time.Second, only: oneHost,
			fails: noEpoll, whose: "librdmacm's"},
		{server: "iperf3 -s -1", client: "iperf3 -c {server} -n 20M", streams: true, ready: listensCM,
			program: "iperf3",
			says:    "getsockopt - Operation not supported", limit: 15 * time.Second, only: oneHost,
			fails: "rsockets have no TCP_INFO", whose: "librdmacm's"},
		{setup: big, server: "socat -u TCP-LISTEN:7777 CREATE:copy", client: "socat -u FILE:file TCP:{server}:7777",
			streams: true, ready: listensCM, limit: 15 * time.Second, only: oneHost,
			says: "segmentation fault", whose: "librdmacm's",
			fails: "librspreload ends it by SIGSEGV as it opens the file, without goroce, too"},
		{setup: big, server: "civetweb -listening_ports 7780 -document_root {dir}", streams: true, ready: listensCM,
			client: "curl -s -o copy http://{server}:7780/file && cmp file copy && echo same", says: "same",
			stays:   true,
			program: "curl", limit: 15 * time.Second},
		{setup: big, server: "civetweb -listening_ports 7780 -document_root {dir}", streams: true, ready: listensCM,
			client: "ab -n 20 http://{server}:7780/agent", says: "Connection refused", stays: true,
			limit: 15 * time.Second, only: oneHost, fails: noEpoll, whose: "librdmacm's"},
	}}

// target has tgtd offer 64 MiB of memory by iSER.
const target = "export TGT_IPC_SOCKET={dir}/tgt; head -c 64M /dev/zero >{dir}/disk; tgtd -f & " +
	"until tgtadm --op show --mode sys >{dir}/sys 2>&1; do sleep 0.1; done; " +
	"tgtadm --lld iser --mode target --op new --tid 1 -T iqn.2026-01.test:disk && " +
	"tgtadm --lld iser --mode logicalunit --op new --tid 1 --lun 1 -b {dir}/disk && " +
	"tgtadm --lld iser --mode target --op bind --tid 1 -I ALL && echo offered; wait"

func iser(program string) row {
	return row{server: target, program: "tgtd, " + program, client: program +
		" iser://{server}/iqn.2026-01.test:disk/1", ready: "offered",
		says: "login failed, class:2 detail:3", root: true, limit: 2 * time.Minute,
		fails: "the connection is there, and tgtd refuses the login over it: no such target; by TCP there is one",
		whose: "not known"}
}

var iserFamily = &family{name: "iSER: tgt and libiscsi", from: []string{"tgt", "libiscsi-bin"}, rows: []row{
	iser("iscsi-inq"),
}}

var storage = &family{name: "NVMe over Fabrics", from: []string{"nvme-cli"}, rows: []row{
	{client: "nvme discover -t rdma -a {server} -s 4420", root: true, only: oneHost, says: `scan topology|nvme-fabrics`,
		fails: "the kernel's initiator (nvme_rdma) is behind /dev/nvme-fabrics, and uses the kernel's devices only",
		whose: "the kernel's"},
}}

// exporter has node_exporter say what it knows of RDMA devices. It is a Go program, so it needs the tree's own path.
const exporter = "--collector.disable-defaults --collector.infiniband --log.level=debug " +
	"--web.listen-address=127.0.0.1:9177 & until curl -s 127.0.0.1:9177/metrics >m; do sleep 0.1; done; " +
	"wait; grep 'node_infiniband_info.*{device}' m"

var lookers = &family{name: "Programs that look at devices", from: []string{"hwloc-nox", "prometheus-node-exporter",
	"iproute2"},
	rows: []row{
		{client: "lstopo-no-graphics --whole-io --of console | grep {device}", says: `.`, only: oneHost,
			fails: "it leaves out devices that are behind no bus, as those of rdma_rxe are", whose: "hwloc's"},
		{client: "timeout 3 prometheus-node-exporter --path.sysfs={tree}/sys " + exporter,
			says:    "collector returned no data",
			program: "prometheus-node-exporter", only: oneHost, whose: "the exporter's, of this version",
			fails: "it wants the file board_id, which rdma_rxe has not either"},
		{client: "rdma link show | grep {device}", says: `.`, only: oneHost,
			fails: "it asks the kernel, by NETLINK_RDMA",
			whose: "ours: `goroced status` shows the device"},
	}}
