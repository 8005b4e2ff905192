# containers.sh RELEASE ROOT WORK
#
# Runs the commands of docs/install.md about containers, which are in WORK/commands: the image of a release, and
# dist/container/compose.yaml by podman-compose and docker-compose. The application is of a root of Debian. It is
# started in the repository's folder, in mount and network namespaces of its own; what is left is below WORK, but for
# control groups of podman without a process.
set -eux
release=$1 root=$2 work=$3

mount -t tmpfs none /run
ip link set lo up
# Root of a virtual machine may not be allowed to raise limits, as podman does otherwise.
cat >"$work/containers.conf" <<END
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
pids_limit = 0
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
END
cat >"$work/storage.conf" <<END
[storage]
driver = "vfs"
graphroot = "$work/root"
runroot = "/run/containers/storage"
END
export CONTAINERS_CONF="$work/containers.conf" CONTAINERS_STORAGE_CONF="$work/storage.conf"

service=
leave() {
	podman rm --force --ignore --time 0 container_client_1 container_server_1
	podman rm --force --all --time 0
	[ -z "$service" ] || kill "$service"
}
trap leave EXIT
# There is no systemd: podman's service is started by hand.
systemctl() {
	[ "$*" = 'start podman.socket' ]
	mkdir -p /run/podman
	podman system service --time 0 unix:///run/podman/podman.sock &
	service=$!
	until [ -S /run/podman/podman.sock ]; do kill -0 $service; sleep 0.1; done
}

: the image
(cd "$release" && . "$work/commands/containers-1")
podman run --rm --network none --entrypoint /usr/bin/goroced-device-plugin localhost/goroced:0.9.1 --help

: two containers play ping-pong
. "$work/commands/containers-2"
[ "$(podman wait container_ping_1 container_pong_1 | tr '\n' ' ')" = '0 0 ' ]
podman rm container_ping_1 container_pong_1

: a daemon beside an application
program=/usr/bin/ib_write_bw
libraries=$(chroot "$root" ldd $program | grep -o '/[^ ]*')
chroot "$root" tar --create --dereference $program $libraries | podman import --quiet - localhost/perftest
. "$work/commands/containers-3"
until podman logs container_client_1 2>&1 | grep '^ 65536 '; do podman container exists container_client_1; done
[ "$(podman wait container_server_1)" = 0 ]

: the daemon ends when it is told to
podman stop --time 20 container_daemon_1
[ "$(podman wait container_daemon_1)" = 0 ]
: all is well
