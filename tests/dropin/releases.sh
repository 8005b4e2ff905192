#!/bin/bash
# releases.sh CACHE
#
# Keeps in CACHE/libibverbs the headers and the library of libibverbs of several releases of
# Debian and Ubuntu, to compare ours with:
#
#	CACHE/libibverbs/SUITE-ARCH/
#		include/infiniband/
#		libibverbs.so.1
#		version
#
# The packages are downloaded from the distributions' mirrors by apt, which verifies the
# signatures, and unpacked, never installed. What is there already is kept; remove
# CACHE/libibverbs to get newer ones. Where no mirror has a release of Ubuntu, SUITE-ARCH.missing
# has apt's reason; the next run tries again.
set -Eeuo pipefail
trap 'echo "releases.sh: line $LINENO: failed" >&2' ERR

debian="bookworm trixie testing"
# The mirrors of Ubuntu have arm64 beside amd64 since 26.04; devel is what will be released next.
ubuntu="noble-amd64 resolute-amd64 resolute-arm64 devel-amd64"

cache=$(realpath -m "$1")
mkdir -p "$cache/libibverbs"
exec 9>"$cache/lock"
flock 9

work=$(mktemp -d "$cache/libibverbs.XXXXXX")
trap 'rm -rf "$work"' EXIT

# apt_for KEYRING MIRROR SUITE ARCH: the command apt is apt-get with this one source, and no package installed.
apt_for() {
	rm -rf "$work/apt"
	mkdir -p "$work"/apt/{lists/partial,archives}
	cd "$work/apt"
	touch status
	echo "deb [signed-by=$1] $2 $3 main" >sources
	apt=(apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists="$PWD/lists" -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD"
		-o APT::Architecture="$4" -o APT::Architectures="$4" -o Acquire::Languages=none
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root
		-o APT::Update::Error-Mode=any)
}

# unpack TO: downloads libibverbs and keeps in TO what is compared.
unpack() {
	"${apt[@]}" download libibverbs1 libibverbs-dev
	for package in libibverbs*.deb; do
		dpkg-deb -x "$package" root
	done
	mkdir -p to/include
	cp -r root/usr/include/infiniband to/include/
	cp -L root/usr/lib/*/libibverbs.so.1 to/
	dpkg-deb -f libibverbs1_*.deb Version >to/version
	mv to "$1"
}

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
if [ -z "$mirror" ]; then
	echo "releases.sh: apt knows no mirror: is this Debian 12, after apt-get update?" >&2
	exit 1
fi
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in $debian; do
	for arch in amd64 arm64; do
		[ ! -e "$cache/libibverbs/$suite-$arch" ] || continue
		apt_for "$debian_keys" "$mirror" "$suite" "$arch"
		"${apt[@]}" update
		unpack "$cache/libibverbs/$suite-$arch"
	done
done

# ubuntu_keys: puts Ubuntu's keys, which Debian 13 has in a package that Debian 12 has not, into $work/keys.
ubuntu_keys() {
	[ ! -e "$work/keys" ] || return 0
	apt_for "$debian_keys" "$mirror" trixie amd64
	"${apt[@]}" update
	"${apt[@]}" download ubuntu-keyring
	dpkg-deb -x ubuntu-keyring_*.deb "$work/keys"
}

ubuntu_mirror=$(sed -n '/^BaseURI-amd64: /{s///p;q}' /usr/share/python-apt/templates/Ubuntu.info)
for name in $ubuntu; do
	to=$cache/libibverbs/$name
	[ ! -e "$to" ] || continue
	ubuntu_keys
	apt_for "$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$ubuntu_mirror" "${name%-*}" "${name#*-}"
	if "${apt[@]}" update 2>errors; then
		unpack "$to"
		rm -f "$to.missing"
	else
		cp errors "$to.missing"
		echo "releases.sh: no $name: $(cat errors)" >&2
	fi
done
chmod 755 "$cache/libibverbs"
