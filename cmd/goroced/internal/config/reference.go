package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/internal/cells"
	"github.com/goroce/goroce/roce/daemon/machine"
)

// Key describes a setting.
type Key struct {
	Name     string // as in a file, "limits.user.qps"; for devices "device.netif"
	Type     string // of TOML
	Allowed  string // values
	Standard string // the default, as in a file or, where it depends on the machine or the user, in words
	Live     bool   // a reload can change it
	About    string // what it is, a sentence or several
	Variable string // of the environment

	value any // the default on this machine
}

// Reference describes all settings, in the order of a file.
func Reference(s Sources) (list []Key) {
	c := defaults(s.UID, s.getenv, machine.Read())
	d := Device{Link: "auto", Congestion: "cubic"}
	for _, st := range slices.Concat(settings(c), deviceSettings(deviceKey+".", &d)) {
		told := told(st.key)
		k := Key{st.key, kindOf(st.value.get()), st.value.allowed, told.standard, st.live, told.about,
			variable(st.key), st.value.get()}
		if k.Standard == "" {
			k.Standard = display(k.value)
		}
		list = append(list, k)
	}
	return list
}

// kindOf returns the type of a value in TOML.
func kindOf(v any) string {
	switch v.(type) {
	case bool:
		return "boolean"
	case int64:
		return "integer"
	case []any:
		return "array of strings"
	}
	return "string"
}

// Tables says what the tables of a file are about.
var Tables = map[string]string{
	"device": "A device. There may be several; without any there is one on the interface of the default route.",
	"limits.user": "What all connections of a user may hold together. A request beyond a limit fails with \"limit " +
		"reached\".",
	"limits.connection": "What one connection may hold.",
	"memory": "Whose programs may register any of their memory, as programs in C do with malloc's. Memory of memfds " +
		"needs neither.",
	"log":     "The log goes to standard error.",
	"metrics": "Metrics for Prometheus, and health, by HTTP.",
}

// told returns what about has of a key.
func told(key string) note {
	if n, ok := about[key]; ok {
		return n
	}
	return about[key[strings.LastIndexByte(key, '.')+1:]] // of both tables of limits
}

// note is what people are told of a setting.
type note struct{ about, standard string }

// about has a note for each setting; those of limits.user and limits.connection share one, under their last word.
var about = map[string]note{
	"socket": {"Path of the socket for clients.", "/run/goroce/goroced.sock for root, " +
		"$XDG_RUNTIME_DIR/goroce/goroced.sock for others, /tmp/goroce-UID/goroced.sock if there is no such directory " +
		"that is the user's alone"},
	"admin": {"Path of the socket for looking at the daemon.", "goroced-admin.sock in the same place"},
	"socket_mode": {"Permissions of both sockets. Users who may write to them may connect.",
		"\"0660\" for root, \"0600\" for others"},
	"socket_group": {"Group of both sockets.", ""},
	"drain":        {"How long clients may take to leave when the daemon is told to end.", ""},
	"idle_exit":    {"The daemon ends after so long without a client; 0s is never.", ""},
	"administrator": {"Who may have ports below 1024 and privileged Q_Keys, and whose processes the daemon reaches " +
		"by the right to ptrace: own is root and the daemon's own user, none is nobody, for containers with a root " +
		"of their own.", ""},

	"limits.user.connections":  {"Connections; a program has one or two.", "a 16th of the descriptors, 16 to 1024"},
	"limits.user.cm_ids":       {"IDs of rdma_cm.", ""},
	"limits.user.cm_listeners": {"IDs of rdma_cm that listen.", ""},
	"limits.user.cm_half_open": {"Requests of peers whose handshake is not over. Beyond it the peer of the oldest is " +
		"rejected.", ""},
	"limits.user.cm_backlog": {"Requests that a listener has not read, whatever backlog it asks for. Beyond it peers " +
		"get no answer, and repeat theirs.", ""},
	"qps":        {"Queue pairs.", ""},
	"mrs":        {"Memory regions.", ""},
	"mws":        {"Memory windows.", ""},
	"cqs":        {"Completion queues.", ""},
	"cq_entries": {"Entries of all completion queues together.", ""},
	"pds":        {"Protection domains.", ""},
	"srqs":       {"Shared receive queues.", ""},
	"ahs":        {"Address handles.", ""},
	"xrcds":      {"XRC domains.", ""},
	"channels":   {"Completion channels, and event channels of rdma_cm.", ""},
	"limits.user.pinned": {"Memory that is registered as memfds, each page once, and rings.",
		"half of the memory"},
	"limits.user.heap":         {"Memory that the daemon takes itself for all of it.", "an 8th of the memory"},
	"limits.connection.pinned": {"Memory that is registered as memfds, and rings.", "a quarter of the memory"},
	"limits.connection.heap":   {"Memory that the daemon takes itself for all of it.", "a 16th of the memory"},

	"memory.own_processes":   {"Programs of the daemon's own user.", ""},
	"memory.other_processes": {"Programs of other users, which let the daemon open all of their memory.", ""},

	"log.level":  {"What is logged.", ""},
	"log.format": {"Form of a line.", ""},

	"metrics.listen": {"Where /metrics and /healthz are served; nowhere by default.", ""},
	"metrics.public": {"Allow an address that is not loopback. Who reaches it may read what users hold.", ""},
	"metrics.pprof":  {"Serve profiles of the daemon there, too; not together with public.", ""},

	"device.name":      {"Name of the device.", "goroce_ and the name of the interface"},
	"device.link":      {"What carries the packets.", ""},
	"device.netif":     {"Network interface whose addresses the device has.", "that of the default route"},
	"device.addresses": {"Own addresses of the device, in place of netif.", ""},
	"device.shards": {"Threads that queue pairs are spread over.",
		"0, which takes one for each four processors, at most four"},
	"device.congestion": {
		"Congestion control: cubic, or dcqcn, that of RoCE NICs, for switches that mark packets (ECN).", ""},
	"device.pin_source_port": {"Take packets of a connection from one UDP source port only, that of the first.", ""},
}

// WriteTemplate writes a configuration file that sets nothing: it has each setting as a comment, with its default on
// this machine and what it means.
func WriteTemplate(w io.Writer, s Sources) error {
	var b strings.Builder
	comment := func(text string) {
		for _, line := range cells.Wrap(text, 98) {
			b.WriteString("# " + line + "\n")
		}
	}
	comment("Configuration of goroced. Settings that begin with # are the defaults; take the # away to change one. " +
		"`goroced config check FILE` finds mistakes, `goroced config show` prints what the daemon would run with.")
	table := ""
	for _, k := range Reference(s) {
		at := strings.LastIndexByte(k.Name, '.')
		if head := k.Name[:max(at, 0)]; head != table {
			table = head
			b.WriteString("\n")
			comment(Tables[table])
			if table == deviceKey {
				fmt.Fprintf(&b, "[[%s]]\n", table)
			} else {
				fmt.Fprintf(&b, "[%s]\n", table)
			}
		}
		b.WriteString("\n")
		text := k.About + " Allowed: " + k.Allowed + "."
		if k.Standard != display(k.value) {
			text += " Default: " + k.Standard + "."
		}
		comment(text)
		fmt.Fprintf(&b, "#%s = %s\n", k.Name[at+1:], display(k.value))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
