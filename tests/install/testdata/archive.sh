# Runs as root in a clean root of Debian with systemd, behind network.sh: the archive in /try, where it was unpacked and
# as the machine's.
: anywhere
tar -xzf goroced_0.9.1_linux_amd64.tar.gz
GOROCED_IDLE_EXIT=100ms goroced_0.9.1_linux_amd64/bin/goroced run -- ibv_devices | grep goroce_eth0
while ss -Hlnu sport = :4791 | grep -q .; do :; done # until the daemon that it started has ended

: the whole machine
tar -xzf goroced_0.9.1_linux_amd64.tar.gz --strip-components=1 --no-same-owner -C /usr
systemd-sysusers goroce.conf
systemctl daemon-reload
systemctl enable --now goroced.socket goroced.service
goroced status
man -w goroced-serve
: all is well
