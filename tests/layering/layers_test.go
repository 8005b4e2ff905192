package layering

// layers has the packages of the module from the bottom to the top, in groups that belong
// together. A package may import the packages of its row, which stand above it here; a package
// without a row, and a row that is longer than what is imported, fail.
var layers = []struct {
	name string
	rows []row
}{
	{"the vocabulary and the wire", []row{
		{"ib", nil},
		{"wire", []string{"ib"}},
		{"wire/layers", []string{"ib", "wire"}},
	}},
	{"memory", []row{
		{"mr", []string{"ib"}},
		{"mr/hostmem", []string{"ib"}},
		{"mr/mrtest", []string{"mr"}},
	}},
	{"the protocol", []row{
		{"qp/ring", []string{"ib"}},
		{"qp", []string{"ib", "wire", "mr", "qp/ring"}},
		{"qp/script", []string{"ib", "wire", "mr", "mr/mrtest", "qp", "qp/ring"}},
		{"roce/cm", []string{"ib", "wire"}},
	}},
	{"links", []row{
		{"roce/neigh", []string{"ib"}},
		{"roce/link", []string{"ib"}},
		{"roce/link/port", []string{"roce/link"}},
		{"roce/link/internal/sock", []string{"ib", "roce/link"}},
		{"roce/link/internal/runs", []string{"roce/link"}},
		{"roce/link/internal/group", []string{"ib", "roce/link"}},
		{"roce/link/internal/local", []string{"ib", "roce/link", "roce/link/internal/group"}},
		{"roce/link/mem", []string{"ib", "roce/link", "roce/link/internal/runs", "roce/link/internal/group",
			"roce/link/internal/local"}},
		{"roce/link/wrap", []string{"ib", "wire", "roce/link", "roce/link/internal/runs", "roce/link/internal/group",
			"roce/link/internal/local"}},
		{"roce/link/udp", []string{"ib", "roce/neigh", "roce/link", "roce/link/port", "roce/link/internal/sock",
			"roce/link/internal/runs", "roce/link/internal/group", "roce/link/internal/local"}},
		{"roce/link/internal/packet", []string{"ib", "wire", "roce/neigh", "roce/link", "roce/link/port",
			"roce/link/internal/sock", "roce/link/internal/runs", "roce/link/internal/group",
			"roce/link/internal/local"}},
		{"roce/link/rawsock", []string{"roce/link", "roce/link/internal/packet"}},
		{"roce/link/afxdp", []string{"ib", "wire", "roce/neigh", "roce/link", "roce/link/internal/sock",
			"roce/link/internal/runs", "roce/link/internal/group", "roce/link/internal/local",
			"roce/link/internal/packet"}},
	}},
	{"the software device", []row{
		{"roce/internal/ipid", []string{"ib", "wire", "roce/link"}},
		{"roce/internal/sequence", nil},
		{"roce/internal/offload", []string{"ib", "wire", "qp"}},
		{"roce/internal/fault", nil},
		{"roce/internal/slowmem", []string{"ib", "mr", "qp", "roce/internal/fault"}},
		{"roce/internal/engine", []string{"ib", "wire", "mr", "qp", "roce/link", "roce/internal/ipid",
			"roce/internal/sequence", "roce/internal/offload", "roce/internal/fault", "roce/internal/slowmem"}},
		{"roce", []string{"ib", "wire", "mr", "qp/ring", "qp", "roce/cm", "roce/link", "roce/internal/sequence",
			"roce/internal/slowmem", "roce/internal/engine"}},
		{"roce/host", []string{"ib", "roce/neigh", "roce/link", "roce/link/wrap", "roce/link/udp", "roce/link/rawsock",
			"roce/link/afxdp", "roce"}},
	}},
	{"other devices: a NIC, the daemon's", []row{
		{"roce/rnic", []string{"ib"}},
		{"roce/daemon/abi", []string{"ib"}},
		{"roce/daemon/internal/yield", nil},
		{"roce/daemon/internal/procmem", []string{"mr"}},
		{"roce/daemon/client", []string{"ib", "qp/ring", "qp", "roce/daemon/abi", "roce/daemon/internal/yield"}},
		{"roce/daemon/dropin", nil},
		{"roce/daemon/machine", nil},
		{"roce/daemon/server", []string{"ib", "mr", "qp/ring", "roce/internal/fault", "roce", "roce/daemon/abi",
			"roce/daemon/machine",
			"roce/daemon/internal/yield", "roce/daemon/internal/procmem"}},
	}},
	{"connections, on any device", []row{
		{"roce/rdmacm", []string{"ib", "wire", "roce/cm"}},
		{"roce/rsocket", []string{"ib", "roce/rdmacm"}},
	}},
	{"the command", []row{
		{tool + "similar", nil},
		{tool + "term", nil},
		{tool + "trace", []string{"ib", "wire", tool + "term"}},
		{tool + "config/socket", []string{"roce/daemon/abi"}},
		{tool + "config", []string{"roce/link", "roce/daemon/machine", tool + "config/socket"}},
		{tool + "device", []string{"ib", "roce/host", "roce/rnic", "roce/daemon/client", tool + "config/socket"}},
		{tool + "completion", []string{"ib"}},
		{tool + "decode/capfile", []string{"ib"}},
		{tool + "decode/track", []string{"ib", "wire", tool + "trace"}},
		{tool + "decode", []string{"ib", "wire", tool + "term", tool + "trace", tool + "decode/capfile",
			tool + "decode/track"}},
		{tool + "explain", []string{"ib", "wire", "qp/script", "roce/cm", "roce/link/mem", "roce/link/wrap", "roce",
			tool + "similar", tool + "term", tool + "trace", tool + "decode"}},
		{tool + "rping", []string{"ib", "wire", "roce/rdmacm", tool + "device"}},
		{tool + "rstream", []string{"ib", "wire", "roce/rdmacm", "roce/rsocket"}},
		{tool + "meet", []string{"ib"}},
		{tool + "pingpong", []string{"ib", tool + "device", tool + "meet"}},
		{tool + "perf", []string{"ib", "wire", "roce/rdmacm", tool + "device", tool + "meet"}},
		{tool + "devinfo", []string{"ib", "roce/link", "roce", "roce/host"}},
		{tool + "serve", []string{tool + "config"}},
		{tool + "sysfs", []string{"ib"}},
		{tool + "launch", []string{"roce/host", "roce/daemon/dropin", tool + "config/socket", tool + "config"}},
		{tool + "admin", []string{"ib", "roce/link/wrap", "roce/host", "roce/daemon/server", tool + "term",
			tool + "config/socket", tool + "serve"}},
		{tool + "demo", []string{"ib", "wire", "roce/link", "roce/link/mem", "roce/link/wrap", "roce", "roce/host",
			tool + "term", tool + "trace", tool + "device", tool + "admin"}},
		{tool + "doctor", []string{"ib", "wire", "roce/neigh", "roce/link", "roce/link/port", "roce/link/udp",
			"roce/host", "roce/daemon/abi", "roce/daemon/client", "roce/daemon/dropin", tool + "term",
			tool + "config/socket", tool + "admin"}},
		{"cmd/goroced", []string{"ib", "roce/link/wrap", "roce", "roce/host", "roce/daemon/server", tool + "similar",
			tool + "term", tool + "config/socket", tool + "config", tool + "device", tool + "completion",
			tool + "decode", tool + "explain", tool + "rping", tool + "rstream", tool + "pingpong",
			tool + "perf", tool + "devinfo", tool + "serve", tool + "sysfs", tool + "launch", tool + "admin",
			tool + "demo", tool + "doctor"}},
	}},
	{"tests", []row{
		{"tests/require", nil},
		{"tests/uffd", nil},
		{"tests/rxe/lab/control", nil},
		{"tests/rxe/lab/guest", []string{"tests/rxe/lab/control"}},
		{"tests/rxe/forward", []string{"ib", "wire", "roce/link", "roce/link/wrap"}},
		{"tests/rxe/lab", []string{"roce/link/wrap", "tests/require", "tests/rxe/forward", "tests/rxe/lab/control"}},
		{"tests/rxe/lab/cmd/rxelab", []string{"tests/rxe/lab"}},
		{"tests/rxe/cmd/cmpeer", []string{"ib", "wire", "roce/cm", "roce/host", "roce/rdmacm"}},
		{"tests/linktest", []string{"ib", "wire", "wire/layers", "roce/link", "roce/link/port", "roce/link/wrap",
			"tests/require"}},
		{"tests/toolstest", []string{"ib", "roce/link/wrap", "roce", "roce/host", "tests/linktest"}},
		{"tests/conformance", []string{"ib"}},
		{"tests/conformance/cmd/conformance", []string{"ib", "roce/host", "roce/rnic", "roce/daemon/client",
			"tests/conformance"}},
		{"tests/perf", []string{"ib", "qp/ring", "roce/link/wrap", "roce/link/udp", "roce", "roce/host",
			"roce/daemon/client", "roce/daemon/dropin", "roce/daemon/server", "roce/rdmacm", "tests/rxe/lab"}},
		{"tests/perf/cmd/perf", []string{"tests/perf"}},
	}},
	{"tests that nothing imports", []row{
		{"tests/abi", nil},
		{"tests/daemon", nil},
		{"tests/docs", nil},
		{"tests/dropin", nil},
		{"tests/layering", nil},
		{"tests/rxe", nil},
	}},
}

// row is a package and all that it imports of this module, tests aside.
type row struct {
	name    string
	imports []string
}

// tool is where the packages of the command are.
const tool = "cmd/goroced/internal/"
