# The network of a root: one interface with an address and the default route.
set -eux
cd /try
ip link set lo up
ip link add eth0 type veth peer name peer0
ip link set peer0 up
ip link set eth0 up
ip address add 192.0.2.1/24 dev eth0
ip route add default via 192.0.2.254
