//go:build linux

package main

import (
	"slices"
	"time"
)

// Programs that were written for RDMA, by others than rdma-core.

// ucxEnv has UCX use the device, and nothing that goes around it.
const ucxEnv = "UCX_TLS=rc_v "

var ucx = &family{name: "UCX", from: []string{"ucx-utils", "libucx-dev", "gcc", "libc6-dev"}, rows: slices.Concat(
	[]row{
		{client: "ucx_info -d", says: `(?s)Transport: rc_verbs.*Device: {device}:1`, ci: true},
		{client: "ucx_info -v", says: `Version 1\.`},
		{client: ucxEnv + "ucx_info -e -u t", says: `rc_verbs`},
	},
	variants(row{server: ucxEnv + "ucx_perftest -p 13400", client: ucxEnv +
		"ucx_perftest -p 13400 {server} -w 10 -f {}",
		ready: "13400", says: `(?m)^ +\d+ `, ci: true},
		"-t tag_lat -n 1000", "-t ucp_put_bw -s 65536 -n 500", "-t ucp_get -s 65536 -n 500"),
	variants(row{server: ucxEnv + "ucx_perftest -p 13400", client: ucxEnv +
		"ucx_perftest -p 13400 {server} -w 10 -f {}",
		ready: "13400", says: `(?m)^ +\d+ `},
		"-t tag_bw -s 1048576 -n 200", "-t tag_sync_lat -n 500", "-t ucp_put_lat -n 500", "-t ucp_add -n 500",
		"-t ucp_fadd -n 500", "-t ucp_swap -n 500", "-t ucp_cswap -n 500", "-t stream_bw -s 65536 -n 500",
		"-t stream_lat -n 500", "-t ucp_am_bw -s 65536 -n 500", "-t ucp_am_lat -n 500"),
	variants(row{server: "ucx_perftest -p 13400", client: "ucx_perftest -p 13400 {server} -w 10 -f -d {device}:1 {}",
		ready: "13400", says: `(?m)^ +\d+ `},
		"-x rc_verbs -t am_lat -n 500", "-x rc_verbs -t put_lat -n 500",
		"-x rc_verbs -t put_bw -D zcopy -s 65536 -n 500",
		"-x rc_verbs -t get -D zcopy -s 65536 -n 500", "-x rc_verbs -t fadd -n 500", "-x ud_verbs -t am_lat -n 500",
		"-x ud_verbs -t am_bw -n 500"),
	[]row{
		{server: "UCX_TLS=ud_v ucx_perftest -p 13400", ready: "13400", says: `(?m)^ +\d+ `,
			client: "UCX_TLS=ud_v ucx_perftest -p 13400 {server} -w 10 -f -t tag_bw -s 65536 -n 200"},
		{setup: "cc -o hello /usr/share/doc/libucx-dev/examples/ucp_hello_world.c -lucp -lucs",
			server: ucxEnv + "{dir}/hello -c mem -p 13337", client: ucxEnv + "{dir}/hello -n {server} -p 13337",
			program: "ucp_hello_world", ready: "13337", says: `UCX data message was received|SUCCESS|-----`},
		{setup: "cc -o uct /usr/share/doc/libucx-dev/examples/uct_hello_world.c -luct -lucs",
			server:  "{dir}/uct -d {device}:1 -t rc_verbs -p 13337",
			client:  "{dir}/uct -d {device}:1 -t rc_verbs -n {server} -p 13337",
			program: "uct_hello_world", ready: "13337", says: `callback|uct_hello|INFO|active message`},
		{setup: "cc -o cs /usr/share/doc/libucx-dev/examples/ucp_client_server.c -lucp -lucs",
			server:  ucxEnv + "UCX_SOCKADDR_TLS_PRIORITY=rdmacm {dir}/cs -l {server} -c tag",
			client:  ucxEnv + "UCX_SOCKADDR_TLS_PRIORITY=rdmacm {dir}/cs -a {server} -c tag",
			program: "ucp_client_server", ready: listensCM, says: `Client|client`, stays: true},
	},
)}

var libfabric = &family{name: "libfabric", from: []string{"libfabric-bin"}, rows: slices.Concat(
	[]row{
		{client: "fi_info -p verbs", says: `(?s)provider: verbs.*domain: {device}`, network: true, ci: true},
		{client: "fi_strerror 11", says: `temporarily`},
	},
	variants(row{server: "fi_pingpong {}", client: "fi_pingpong {} {server}", ready: "47592", network: true, ci: true,
		says: `(?m)^\S+ +100 +=100 `}, "-p verbs -e msg -I 100 -S 4096"),
	variants(row{server: "fi_pingpong {}", client: "fi_pingpong {} {server}", ready: "47592", network: true,
		says: `(?m)^\S+ +\d+ +=\d+ `},
		"-p verbs -e msg -I 100 -S all", "-p verbs -e dgram -I 100 -S 1024",
		"-p 'verbs;ofi_rxm' -e rdm -I 100 -S 65536",
		"-p 'verbs;ofi_rxd' -e rdm -I 100 -S 4096", "-p 'verbs;ofi_rxm' -e rdm -I 20 -S 1048576 -c"),
)}

// fioJob is a job of fio's rdma engine.
func fioJob(verb string) row {
	const common = " --ioengine=rdma --port=8888 --bs=64k --size=16m --iodepth=8"
	return row{server: "fio --name=target --rw=read" + common,
		client: "fio --name=client --rw=write" + common + " --hostname={server} --verb=" + verb,
		ready:  listensCM, says: `WRITE: .*io=16\.0MiB`, ci: verb == "write"}
}

var fio = &family{name: "fio", from: []string{"fio"}, also: "`--verb=send` is a race: fio asks for no RNR retry, and " +
	"may send before its server has posted a receive.", rows: []row{
	fioJob("write"), fioJob("read"),
	{client: "fio --enghelp=rdma", says: `verb`},
}}

// qperfRow is a row of qperf.
func qperfRow(tests string) row {
	return row{server: "qperf", client: "qperf {server} -cm 1 -t 1 " + tests, network: true, stays: true,
		early: true, ready: "19765", says: `_lat:|_bw:|_mr:`}
}

// noGRH is why tests of qperf that know no rdma_cm fail.
const noGRH = "this test knows no rdma_cm and gives address handles no GRH, with rdma_rxe too"

var qperf = &family{name: "qperf", from: []string{"qperf"}, rows: []row{
	qperfRow("rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw"),
	qperfRow("rc_bi_bw rc_rdma_read_lat rc_rdma_write_lat rc_rdma_write_poll_lat"),
	qperfRow("rc_compare_swap_mr rc_fetch_add_mr"),
	{server: "qperf", client: "qperf {server} -cm 1 -t 1 uc_lat", network: true, stays: true, early: true,
		ready: "19765", says: `failed to modify QP to RTR: Invalid argument`, fails: noGRH, whose: "qperf's"},
	{server: "qperf", client: "qperf {server} -cm 1 -t 1 ud_bw", network: true, stays: true, early: true,
		ready: "19765", says: `failed to create address handle: Invalid argument`, fails: noGRH, whose: "qperf's"},
}}

// datConf names DAPL's providers for the device.
const datConf = `printf '%s\n' ` +
	`'ofa-v2-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "eth0 0" ""' ` +
	`'ofa-v2-scm u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "{device} 1" ""' >{dir}/dat.conf`

const dat = "DAT_OVERRIDE={dir}/dat.conf "

var dapl = &family{name: "DAPL", from: []string{"dapl2-utils"}, rows: []row{
	{setup: datConf, server: dat + "dtest -P ofa-v2-cma", client: dat + "dtest -P ofa-v2-cma -h {server}",
		ready: "waiting for client",
		says:  `PASSED|Test Complete|DAPL Test Complete`, network: true, stays: true},
	{setup: datConf, server: dat + "dtestcm -P ofa-v2-cma", client: dat + "dtestcm -P ofa-v2-cma -h {server}",
		ready: listensCM, says: `Connections`, network: true},
	{setup: datConf, server: dat + "dtestsrq -P ofa-v2-cma", client: dat + "dtestsrq -P ofa-v2-cma -h {server}",
		ready: listensCM, says: `PASSED|Complete`, network: true},
	{setup: datConf, server: dat + "dapltest -T S -D ofa-v2-cma",
		client: dat + "dapltest -T T -s {server} -D ofa-v2-cma -i 100 -t 1 -w 1 client SR 256 server SR 256",
		ready:  listensCM, says: `(?i)total|Work:`, network: true, stays: true, ci: true},
}}

// migrate starts a guest without a disk, and one that waits for it.
const guest = "qemu-system-x86_64 -nodefaults -display none -machine pc,accel=tcg -m 64 -S "

var qemu = &family{name: "QEMU", from: []string{"qemu-system-x86"}, rows: []row{
	{server: guest + "-incoming rdma:{server}:4444", ready: listensCM, stays: true, program: "qemu-system-x86_64",
		client: `(printf '%s\n' '{"execute":"qmp_capabilities"}' ` +
			`'{"execute":"migrate","arguments":{"uri":"rdma:{server}:4444"}}'; for i in $(seq 10); do sleep 0.5; ` +
			`echo '{"execute":"query-migrate"}'; done; echo '{"execute":"quit"}') | ` + guest + "-qmp stdio",
		says: `"status": "completed"`, ci: true},
}}

var pyverbs = &family{name: "pyverbs", from: []string{"python3-pyverbs"}, rows: slices.Concat(
	[]row{{client: "/usr/bin/python3 /usr/share/doc/python3-pyverbs/examples/ib_devices.py", program: "ib_devices.py",
		says: `{device}`, ci: true}},
	variants(row{program: "rdma-core's tests", limit: 3 * time.Minute, only: oneHost,
		setup:  "mkdir tests && cp /usr/share/doc/rdma-core/tests/*.py* tests && gzip -d tests/*.gz",
		client: "/usr/bin/python3 tests/run_tests.py --dev {device} --gid 0 -v {}", says: `(?m)^OK`},
		"test_device", "test_addr", "test_pd", "test_cq", "test_cqex", "test_cq_events", "test_qp", "test_qpex",
		"test_mr",
		"test_atomic", "test_parent_domain", "test_relaxed_ordering", "test_odp", "test_fork", "test_rdmacm",
		"test_shared_pd", "test_flow", "test_tag_matching"),
)}
