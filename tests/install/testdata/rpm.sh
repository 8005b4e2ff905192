# Runs as root in a root of Debian with systemd, behind network.sh: rpm installs, reinstalls and removes the
# package in /try. rpm does not know the packages of Debian, which have what it depends on.
: install
rpm --install --nodeps goroced-0.9.1-1.*.rpm
rpm --verify --nodeps goroced
getent passwd goroce
systemctl is-enabled goroced.socket goroced.service
goroced version
test -s /usr/lib/goroce/libibverbs.so.1
test -s /usr/share/man/man1/goroced.1.gz
systemctl enable --now goroced.socket goroced.service
goroced status

: again
was=$(systemctl show --value --property MainPID goroced.service)
echo '# of the administrator' >>/etc/goroce/goroced.toml
rpm --upgrade --replacepkgs --nodeps goroced-0.9.1-1.*.rpm
grep -q 'of the administrator' /etc/goroce/goroced.toml
[ "$was" != "$(systemctl show --value --property MainPID goroced.service)" ]

: remove
rpm --erase goroced
if systemctl is-active goroced.service goroced.socket; then exit 1; fi
test ! -e /usr/bin/goroced
test ! -e /usr/lib/goroce
test -s /etc/goroce/goroced.toml.rpmsave
: all is well
