//go:build linux

package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// family has programs of one origin.
type family struct {
	name string
	from []string // packages of Debian; the first one's version is the family's
	also string   // what it needs beside packages, or where else it comes from
	rows []row
}

// row is a program, or a pair of them, and what success looks like. In the command lines, which are the shell's,
// {server} and {client} are the IPv4 addresses of both ends, {server6} that of IPv6, {dir} is a folder of the row's
// own, and {device} the RDMA device.
type row struct {
	family  *family // of the table
	program string  // without one, the first word of the command that is a program
	setup   string  // a command that comes before, without a daemon: it compiles an example, for instance
	server  string  // without one the client runs alone, on each host
	client  string  // without one it is the server's, with {server} behind it
	ready   string  // when the client may come: listensCM, the number of a port, or a text that the server prints
	says    string  // a regular expression: what the client prints
	only    place   // both places, if it is 0
	network bool    // it leaves out, or cannot do without, an interface that is not the loopback one
	root    bool    // the programs and their daemons are root's
	stays   bool    // the server does not end by itself
	streams bool    // its sockets of TCP become rsockets (librspreload)
	early   bool    // tried again, as the server asks its client to come before it listens, or its error may get lost
	limit   time.Duration
	fails   string // why it does not work; then says is what one of the ends prints
	whose   string // that is
	ci      bool   // .ci/run plays it
}

// listensCM: the server listens by rdma_cm.
const listensCM = "rdma_cm"

// place is where a row is played.
type place int

const (
	oneHost  place = iota + 1 // both programs over one daemon
	twoHosts                  // in two network namespaces with a daemon each
)

func (p place) String() string { return [...]string{"", "one", "two"}[p] }

// table returns all rows.
func table() (rows []row) {
	for _, f := range allFamilies {
		for _, r := range f.rows {
			rows = append(rows, complete(f, r))
		}
	}
	return rows
}

// complete fills in what a row leaves out.
func complete(f *family, r row) row {
	r.family = f
	r.program = cmp.Or(r.program, program(cmp.Or(r.client, r.server)))
	if r.client == "" {
		r.client = r.server + " {server}"
	}
	r.limit = cmp.Or(r.limit, time.Minute)
	return r
}

// places returns where the row is played.
func (r *row) places() []place {
	if r.only != 0 {
		return []place{r.only}
	}
	return []place{oneHost, twoHosts}
}

// program returns the program of a command line.
func program(line string) string {
	for word := range strings.FieldsSeq(line) {
		if !strings.Contains(word, "=") && word != "env" {
			return filepath.Base(word)
		}
	}
	return line
}

// name returns the command lines as people write them.
func (r *row) name() string {
	line := r.client
	if r.server != "" && r.client != r.server+" {server}" {
		line = r.server + "; " + r.client
	} else if r.server != "" {
		line = r.server
	}
	if r.setup != "" {
		line = r.setup + "; " + line
	}
	return strings.TrimSpace(forPeople.Replace(line))
}

var forPeople = strings.NewReplacer("{server}", "SERVER", "{server6}", "SERVER", "{client}", "CLIENT", "{dir}/", "",
	"{dir}", ".", "{device}", "DEVICE", "{tree}", "TREE", "{a}", "SERVER", "{b}", "CLIENT")

// packages returns the packages of rows.
func packages(rows []row) (list []string) {
	for _, f := range families(rows) {
		list = append(list, f.from...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// variants returns a row for each set of options, which take the place of {} in the server's command and the client's.
func variants(r row, options ...string) (list []row) {
	for _, o := range options {
		v := r
		v.server, v.client = strings.ReplaceAll(r.server, "{}", o), strings.ReplaceAll(r.client, "{}", o)
		list = append(list, v)
	}
	return list
}

// verdict is a word for a result.
func (r *result) verdict() string {
	switch {
	case r.err != nil:
		return "WRONG"
	case r.row.fails != "":
		return "no"
	}
	return "ok"
}

// result is what came of a row.
type result struct {
	row    *row
	err    error // it was not as the table says
	output string
	took   time.Duration
}

func (r *result) wrong(format string, args ...any) { r.err = fmt.Errorf(format, args...) }
