# containers.sh IMAGE ROOT WORK
#
# Runs what dist/container/compose.yaml says by podman: the image of a release, and an application in a root of Debian.
# It is started in mount and network namespaces of its own; all that is left is below WORK.
set -eux
image=$1 root=$2 work=$3

podman() {
	command podman --root "$work/root" --runroot "$work/run" --tmpdir "$work/tmp" --storage-driver vfs \
		--cgroup-manager cgroupfs --events-backend none --runtime runc "$@"
}
# Root of a virtual machine may not be allowed to raise limits, as podman does otherwise.
parent=goroce-install-$$
run() {
	podman run --cgroup-parent "/$parent" --pids-limit -1 --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 "$@"
}
leave() {
	podman rm --force --ignore --time 0 server pong
	podman rm --force --all --time 0
	find /sys/fs/cgroup -depth -type d -path "/sys/fs/cgroup/*$parent*" -exec rmdir {} \;
}
trap leave EXIT

# Two hosts with a network between them.
mount -t tmpfs none /run/netns 2>/dev/null || { mkdir -p /run/netns && mount -t tmpfs none /run/netns; }
ip netns add a
ip netns add b
ip -n a link add eth0 type veth peer name eth0 netns b
for host in a b; do
	ip -n $host link set lo up
	ip -n $host link set eth0 up
done
ip -n a address add 192.0.2.1/24 dev eth0
ip -n b address add 192.0.2.2/24 dev eth0
for host in a b; do ip -n $host route add default dev eth0; done
listens() { until ip netns exec a ss -Hltn sport = ":$1" | grep -q .; do podman container exists "$2"; done; }

podman load --quiet --input "$image"
name=$(podman images --format '{{.Repository}}:{{.Tag}}')
run --rm --network none "$name" version

: two containers play ping-pong
run --detach --name pong --network ns:/run/netns/a "$name" pingpong
listens 18515 pong
run --rm --network ns:/run/netns/b "$name" pingpong 192.0.2.1
[ "$(podman wait pong)" = 0 ]

: a daemon beside an application
run --detach --name daemon --network ns:/run/netns/a -v sockets:/run/goroce -v libraries:/usr/lib/goroce "$name"
until podman logs daemon 2>&1 | grep -q '"msg":"ready"'; do podman container exists daemon; done
application() {
	run --user 65532:65532 --pid container:daemon --network ns:/run/netns/a -v sockets:/run/goroce \
		-v libraries:/usr/lib/goroce:ro -e GOROCED_SOCKET=/run/goroce/goroced.sock \
		-e LD_LIBRARY_PATH=/usr/lib/goroce -e LD_PRELOAD=/usr/lib/goroce/libgoroce-sys.so "$@"
}
application --detach --name server --rootfs "$root" ib_write_bw -F -x 0 -n 200
listens 18515 server
application --rm --rootfs "$root" ib_write_bw -F -x 0 -n 200 127.0.0.1
[ "$(podman wait server)" = 0 ]

: the daemon ends when it is told to
podman stop --time 20 daemon
[ "$(podman wait daemon)" = 0 ]
: all is well
