# Runs as root in a clean root of Debian or Ubuntu with systemd, after network.sh: installs, upgrades, removes and
# purges the packages in /try, and uses the daemon as an ordinary user.
refused() { if "$@"; then echo "this should have failed: $*"; exit 1; fi; }
as() { user=$1; shift; runuser -u "$user" -- env -C / HOME="/home/$user" "$@"; }

useradd --create-home member
useradd --create-home stranger

: install
. ./debian-and-ubuntu-1
systemctl is-active goroced.socket goroced.service
systemctl is-enabled goroced.socket goroced.service
getent group goroce
goroced status
man -w goroced goroced-serve goroced.toml
test -s /usr/share/bash-completion/completions/goroced
test -s /usr/share/doc/goroced/examples/grafana/goroce.json

# Runs the document's commands as a member, a client when its server listens.
try() (
	goroced() {
		case $* in
		"rping -c "*)
			until command goroced cm | grep -i listen; do :; done
			set -- "$@" -V # compares the data
			;;
		# perftest's server listens by TCP, where the client is to find it.
		*" ib_write_bw "*" 192.0.2.1") until ss -Hltn sport = :18515 | grep -q .; do :; done ;;
		esac
		as member goroced "$@" || kill $$ # which may wait for a server
	}
	. ./debian-and-ubuntu-2
	wait
)

: an ordinary user of the group
try

: others
refused as stranger goroced devinfo --daemon

: a second daemon, by name
ip link add eth1 type veth peer name peer1
ip link set peer1 up
ip link set eth1 up
ip address add 198.51.100.1/24 dev eth1
refused systemctl start goroced@blue.service
cat >/etc/goroce/blue.toml <<END
[memory]
other_processes = true
[[device]]
name = "blue"
netif = "eth1"
END
systemctl enable --now goroced@blue.socket goroced@blue.service
goroced status --admin /run/goroce/blue-admin.sock
named() {
	as member GOROCED_SOCKET=/run/goroce/blue.sock goroced run -- ib_write_bw -F -x 0 -n 200 -d blue &
	until ss -Hltn sport = :18515 | grep -q .; do kill -0 $!; done
	as member GOROCED_SOCKET=/run/goroce/blue.sock goroced run -- ib_write_bw -F -x 0 -n 200 -d blue 198.51.100.1
	wait $!
}
named

: upgrade
blue=$(systemctl show --value --property InvocationID goroced@blue.service)
echo '# of the administrator' >>/etc/goroce/goroced.toml
was=$(systemctl show --value --property InvocationID goroced.service)
ln /run/goroce/goroced.sock /run/kept.sock # while it is there no other socket has its inode number
dpkg -i goroced_0.9.2-1_*.deb
systemctl is-active goroced.socket goroced.service
now=$(systemctl show --value --property InvocationID goroced.service)
[ "$was" != "$now" ]
[ /run/kept.sock -ef /run/goroce/goroced.sock ]
rm /run/kept.sock
grep -q 'of the administrator' /etc/goroce/goroced.toml
try
[ "$blue" != "$(systemctl show --value --property InvocationID goroced@blue.service)" ]
named

: what the administrator has disabled stays so
systemctl disable goroced.service goroced.socket
dpkg -i goroced_0.9.1-1_*.deb
refused systemctl is-enabled goroced.service
systemctl enable goroced.service goroced.socket

: remove
dpkg -r goroced
refused systemctl is-active goroced.service
refused systemctl is-active goroced.socket
refused systemctl is-active goroced@blue.service
refused systemctl is-active goroced@blue.socket
test ! -e /usr/bin/goroced
test ! -e /usr/lib/goroce
test ! -e /run/goroce/goroced.sock
test ! -e /run/goroce/blue.sock
grep -q 'of the administrator' /etc/goroce/goroced.toml

: purge
rm /etc/goroce/blue.toml
dpkg -P goroced
left=$(find /etc /usr /var /run -xdev -name '*goroce*' -not -path '/var/log/*')
[ -z "$left" ]
: all is well
