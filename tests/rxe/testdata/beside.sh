#!/bin/sh
# beside.sh ADDR: in a guest whose rdma_rxe has the address ADDR, runs goroced and programs over it, and over rdma_rxe,
# and says what each comes to. goroced has a network namespace of its own, as rdma_rxe has UDP port 4791 of the guest's.
dir=/tmp/beside
mkdir -p $dir
apart() { busybox unshare -n sh -c "ip link set lo up; $1"; }
devices() { "$@" | busybox awk '/^    [a-z]/ && $1 != "device" { printf " %s", $1 }'; echo; }

echo "kernel:$(devices ibv_devices)"

busybox unshare -n sh -c "ip link set lo up; exec $dir/goroced serve --addr 127.9.0.1 --socket $dir/s --admin $dir/a" \
	>$dir/log 2>&1 &
daemon=$!
n=0
until grep -q msg=ready $dir/log; do
	n=$((n + 1))
	[ $n -lt 300 ] || { cat $dir/log; exit 1; }
	sleep 0.1
done
in_its() { busybox nsenter -t $daemon -n -- env "$@"; }
over() { in_its $dir/goroced run --socket $dir/s -- env "$@"; }

echo "both libraries:$(devices over ibv_devices)"
echo "libibverbs only:$(devices over LD_PRELOAD= ibv_devices)"
echo "the preload only:$(devices over LD_LIBRARY_PATH= ibv_devices 2>/dev/null)"

# Both worlds at once: a conversation over each.
over rping -s -a 127.9.0.1 -C 20 >$dir/server 2>&1 &
ours=$!
rping -s -a "$1" -C 20 >$dir/kernel 2>&1 &
theirs=$!
until rdma resource show cm_id | grep -q 'state LISTEN'; do sleep 0.1; done
until $dir/goroced cm --admin $dir/a | grep -q 'state LISTEN'; do sleep 0.1; done
# What a client prints on success depends on whether its thread is still there when the disconnect comes.
over rping -c -a 127.9.0.1 -C 20 -V >/dev/null && wait $ours && echo "rping over the library: ok"
rping -c -a "$1" -C 20 -V >/dev/null && wait $theirs && echo "rping over rdma_rxe: ok"

# A program that gets one library only is in two worlds: it must end, and say so.
first() { busybox head -n 1 | busybox sed "s/^/$1: /"; }
$dir/goroced run --socket $dir/s -- env LD_PRELOAD= rping -s -a "$1" 2>&1 | first "rping with libibverbs only"
over LD_LIBRARY_PATH= rping -s -a 127.9.0.1 2>&1 | first "rping with the preload only"

kill $daemon
wait $daemon
echo "kernel:$(devices ibv_devices)"
