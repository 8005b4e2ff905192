#!/bin/bash
# root.sh CACHE
#
# Keeps in CACHE/install a clean root of Debian 12 with systemd, perftest and what else tests of the packages need, but
# nothing of goroce:
#
#	CACHE/install/root/
#
# It is made from the mirror that this machine uses, by mmdebstrap. What is there already is kept; remove CACHE/install
# to get a newer one.
set -Eeuo pipefail
trap 'echo "root.sh: line $LINENO: failed" >&2' ERR

cache=$(realpath -m "$1")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -e "$cache/install" ] || exit 0

work=$(mktemp -d "$cache/install.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
if [ -z "$mirror" ]; then
	echo "root.sh: apt knows no mirror: is this Debian 12, after apt-get update?" >&2
	exit 1
fi
packages=(systemd libpam-systemd dbus iproute2 man-db bash-completion perftest ibverbs-utils libibverbs1 librdmacm1 rpm)
mmdebstrap --quiet --variant=apt --include="$(IFS=,; echo "${packages[*]}")" --components=main \
	--skip=output/dev bookworm "$work/root" \
	"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main"
mv "$work" "$cache/install"
trap - EXIT
