#!/bin/sh
# A machine with an RDMA device of the kernel, as far as files go: run in a mount namespace, as root. The commands after
# it see what programs look at before they use the device.
set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/rxe0/ports/1 /sys/class/infiniband_verbs/uverbs0
echo rxe0 >/sys/class/infiniband_verbs/uverbs0/ibdev
echo 6 >/sys/class/infiniband_verbs/abi_version
mount -t tmpfs none /dev
mkdir /dev/shm /dev/infiniband
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
mknod -m 666 /dev/infiniband/uverbs0 c 1 5
mknod -m 666 /dev/infiniband/rdma_cm c 1 5
exec "$@"
