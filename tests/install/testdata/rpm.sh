# Runs as root in a root of Debian with systemd, after network.sh: rpm installs, reinstalls and removes the
# package in /try. rpm does not know the packages of Debian, which have what it depends on.
rpm() { command rpm --nodeps "$@"; }
# Before anything is enabled by hand, the preset has done so.
systemctl() {
	if [ "$1" = enable ]; then command systemctl is-enabled goroced.socket goroced.service; fi
	command systemctl "$@"
}

: install
. ./fedora-rhel-suse-1
rpm --verify goroced
getent passwd goroce
goroced version
test -s /usr/lib/goroce/libibverbs.so.1
test -s /usr/share/man/man1/goroced.1.gz
test -s /usr/share/man/man5/goroced.toml.5.gz
test -s /usr/share/doc/goroced/examples/grafana/goroce.json
goroced status

: again
was=$(systemctl show --value --property InvocationID goroced.service)
echo '# of the administrator' >>/etc/goroce/goroced.toml
rpm --upgrade --replacepkgs goroced-0.9.1-1.*.rpm
grep -q 'of the administrator' /etc/goroce/goroced.toml
[ "$was" != "$(systemctl show --value --property InvocationID goroced.service)" ]

: remove
rpm --erase goroced
if systemctl is-active goroced.service goroced.socket; then exit 1; fi
test ! -e /usr/bin/goroced
test ! -e /usr/lib/goroce
test ! -e /usr/share/doc/goroced
test -s /etc/goroce/goroced.toml.rpmsave
: all is well
