package lab

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// RxeDev is the name of every guest's rxe device.
const RxeDev = "rxe0"

const rxePort = "/sys/class/infiniband/" + RxeDev + "/ports/1"

// gidsShown is how many entries of the GID table GIDs reads: rxe has 1024, and
// fills them from the start.
const gidsShown = 16

// GIDs returns the entries of rxe's GID table by their index; an IPv4 address
// shows as itself, not as the IPv6 address that maps it. All are of RoCE v2.
func (vm *VM) GIDs(ctx context.Context) (map[int]netip.Addr, error) {
	script := fmt.Sprintf(`cd %s && i=0 && while [ $i -lt %d ]; do read -r gid <gids/$i && echo $i $gid; i=$((i+1)); done`, rxePort, gidsShown)
	output, err := vm.Output(ctx, "sh", "-c", script)
	if err != nil {
		return nil, err
	}
	gids := make(map[int]netip.Addr)
	for line := range strings.Lines(output) {
		var index int
		var text string
		if _, err := fmt.Sscan(line, &index, &text); err != nil {
			return nil, fmt.Errorf("%s: GID table holds %q: %w", vm.Name, line, err)
		}
		gid, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%s: GID table holds %q: %w", vm.Name, line, err)
		}
		if !gid.IsUnspecified() {
			gids[index] = gid.Unmap()
		}
	}
	return gids, nil
}

// GIDIndex returns the index of the address in rxe's GID table: the -g of
// ibv_rc_pingpong, the -x of perftest.
func (vm *VM) GIDIndex(ctx context.Context, address netip.Addr) (int, error) {
	gids, err := vm.GIDs(ctx)
	if err != nil {
		return 0, err
	}
	for index, gid := range gids {
		if gid == address.Unmap() {
			return index, nil
		}
	}
	return 0, fmt.Errorf("%s: address %s is not in the GID table, which holds %v", vm.Name, address, gids)
}

// Counters returns rxe's hw_counters by name.
func (vm *VM) Counters(ctx context.Context) (map[string]uint64, error) {
	output, err := vm.Output(ctx, "sh", "-c", "cd "+rxePort+"/hw_counters && grep '' *")
	if err != nil {
		return nil, err
	}
	counters := make(map[string]uint64)
	for line := range strings.Lines(output) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "lifespan" {
			continue // how long the kernel caches them, in ms
		}
		value, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: counter reads %q: %w", vm.Name, line, err)
		}
		counters[name] = value
	}
	return counters, nil
}

var activeMTU = regexp.MustCompile(`active_mtu:\s+(\d+)`)

// ActiveMTU returns the port's active MTU in bytes: the largest path MTU that fits
// the MTU of eth0.
func (vm *VM) ActiveMTU(ctx context.Context) (int, error) {
	output, err := vm.Output(ctx, "ibv_devinfo", "-d", RxeDev)
	if err != nil {
		return 0, err
	}
	match := activeMTU.FindStringSubmatch(output)
	if match == nil {
		return 0, fmt.Errorf("%s: ibv_devinfo shows no active_mtu:\n%s", vm.Name, output)
	}
	return strconv.Atoi(match[1])
}
