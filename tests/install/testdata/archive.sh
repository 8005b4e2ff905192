# Runs as root in a clean root of Debian with systemd, after network.sh: the archive in /try, where it was unpacked and
# as the machine's.
: anywhere
export GOROCED_IDLE_EXIT=100ms
. ./archive-1 | grep goroce_eth0
while ss -Hlnu sport = :4791 | grep -q .; do :; done # until the daemon that it started has ended

: the whole machine
. ./archive-2
goroced status
man -w goroced-serve goroced.toml
: all is well
