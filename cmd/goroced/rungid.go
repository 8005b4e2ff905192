//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/client"
)

// gidVariable names the address for programs that ask for its index and are given none.
const gidVariable = "GOROCE_GID"

// indexOption is how programs take an index of the GID table.
type indexOption struct {
	programs    *regexp.Regexp
	short, long string
}

// Programs that take an index of the GID table take no address there: perftest refuses one, and the ping-pongs read
// 10.0.0.1 as index 10.
var (
	indexOptions = []indexOption{
		{regexp.MustCompile(`^ib_(send|write|read|atomic)_(bw|lat)$`), "-x", "--gid-index"},
		{regexp.MustCompile(`^ibv_(rc|uc|ud|srq|xsrq)_pingpong$`), "-g", "--gid-idx"},
	}
	deviceOption = indexOption{nil, "-d", "--ib-dev"} // of all of them
)

// value returns the place of an option's value in a command line, and what precedes it in its word. at is 0 if the
// option is not given.
func (o *indexOption) value(args []string) (at int, prefix string) {
	for i, word := range args[1:] {
		i++
		switch {
		case word == "--":
			return 0, ""
		case (word == o.short || word == o.long) && i+1 < len(args):
			return i + 1, ""
		case strings.HasPrefix(word, o.long+"="):
			return i, o.long + "="
		case strings.HasPrefix(word, o.short) && len(word) > len(o.short) && !strings.HasPrefix(word, "--"):
			return i, o.short
		}
	}
	return 0, ""
}

// indexed returns the command line of a program that asks for the index of an address, in which the address is replaced
// by the index that it has in the table of a device of the daemon at the socket. It adds the name of that device if the
// daemon has more and none is given, and the option if the environment variable names the address. Other command lines
// stay as they are.
func indexed(ctx context.Context, path string, args []string, variable string) ([]string, error) {
	i := slices.IndexFunc(indexOptions, func(o indexOption) bool {
		return o.programs.MatchString(filepath.Base(args[0]))
	})
	if i < 0 {
		return args, nil
	}
	o := &indexOptions[i]
	args = slices.Clone(args)
	at, prefix := o.value(args)
	if at == 0 && variable != "" {
		args, at = slices.Insert(args, 1, o.short, variable), 2
	}
	if at == 0 {
		return args, nil
	}
	addr, err := netip.ParseAddr(args[at][len(prefix):])
	if err != nil {
		if args[at] == variable && prefix == "" {
			return nil, fmt.Errorf("run: %s is %q; want an IP address", gidVariable, variable)
		}
		return args, nil // an index, or something that the program refuses
	}
	device := ""
	if at, prefix := deviceOption.value(args); at > 0 {
		device = args[at][len(prefix):]
	}
	name, index, several, err := findGID(ctx, path, device, addr.Unmap().WithZone(""))
	if err != nil {
		return nil, fmt.Errorf("run: %s %v: %w", o.short, addr, err)
	}
	args[at] = prefix + strconv.Itoa(index)
	if device == "" && several {
		args = slices.Insert(args, 1, deviceOption.short, name)
	}
	return args, nil
}

// findGID looks an address up in the GID tables of a daemon's devices, or of one. several reports whether the daemon
// has more than one.
func findGID(ctx context.Context, path, device string, addr netip.Addr) (name string, index int, several bool,
	err error) {
	conn, err := socket.Dial(socket.Client, path)
	if err != nil {
		return "", 0, false, err
	}
	greeting, err := socket.Greet(ctx, conn)
	_ = conn.Close()
	if err != nil {
		return "", 0, false, err
	}
	var has []string
	for _, d := range greeting.Devices {
		if device != "" && d != device {
			continue
		}
		rows, err := rowsOf(ctx, path, d)
		if err != nil {
			return "", 0, false, err
		}
		for _, row := range rows {
			if row.addr == addr {
				return d, row.index, len(greeting.Devices) > 1, nil
			}
			has = append(has, fmt.Sprintf("%v (index %d of %s)", row.addr, row.index, d))
		}
	}
	if len(has) == 0 {
		return "", 0, false, fmt.Errorf("the daemon has no device %q; it has %s", device,
			strings.Join(greeting.Devices, ", "))
	}
	return "", 0, false, fmt.Errorf("the daemon does not have this address; it has %s", strings.Join(has, ", "))
}

// gidRow is a row of a GID table.
type gidRow struct {
	addr  netip.Addr
	index int
}

// rowsOf returns the GID table of a daemon's device.
func rowsOf(ctx context.Context, path, device string) (rows []gidRow, err error) {
	d, err := client.Dial(ctx, client.Options{Socket: path, Device: device})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	table, err := d.GIDs(1)
	for _, e := range table {
		rows = append(rows, gidRow{e.GID.Addr(), e.Index})
	}
	return rows, err
}
