#!/bin/bash
# root.sh CACHE
#
# Keeps in CACHE/install clean roots with systemd, perftest and what else tests of the packages need, but nothing of
# goroce:
#
#	CACHE/install/bookworm/		Debian 12
#	CACHE/install/noble/		Ubuntu 24.04
#
# They are made from the distributions' mirrors by mmdebstrap. What is there already is kept; remove CACHE/install to
# get newer ones. Where no mirror has Ubuntu, noble.missing has the reason; the next run tries again.
set -Eeuo pipefail
trap 'echo "root.sh: line $LINENO: failed" >&2' ERR

cache=$(realpath -m "$1")
mkdir -p "$cache/install"
exec 9>"$cache/lock"
flock 9

work=$(mktemp -d "$cache/install.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
if [ -z "$mirror" ]; then
	echo "root.sh: apt knows no mirror: is this Debian 12, after apt-get update?" >&2
	exit 1
fi
debian="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror"
packages=systemd,libpam-systemd,dbus,iproute2,man-db,bash-completion,perftest,ibverbs-utils,libibverbs1,librdmacm1

if [ ! -e "$cache/install/bookworm" ]; then
	mmdebstrap --quiet --variant=apt --include="$packages,rpm" --skip=output/dev bookworm "$work/bookworm" \
		"deb $debian bookworm main"
	mv "$work/bookworm" "$cache/install/"
fi

# noble MIRROR: makes the root. Debian 13 has Ubuntu's keys in a package that Debian 12 has not.
noble() {
	mmdebstrap --quiet --variant=extract --include=ubuntu-keyring trixie "$work/keys" "deb $debian trixie main" &&
		mmdebstrap --quiet --variant=apt --include="$packages" --skip=output/dev noble "$work/noble" \
			"deb [signed-by=$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg] $1 noble main universe"
}
if [ ! -e "$cache/install/noble" ]; then
	ubuntu_mirror=$(sed -n '/^BaseURI-amd64: /{s///p;q}' /usr/share/python-apt/templates/Ubuntu.info)
	if noble "$ubuntu_mirror" 2>"$work/errors"; then
		mv "$work/noble" "$cache/install/"
		rm -f "$cache/install/noble.missing"
	else
		cp "$work/errors" "$cache/install/noble.missing"
		echo "root.sh: no noble: $(cat "$work/errors")" >&2
	fi
fi
