#!/bin/bash
# releases.sh CACHE
#
# Keeps in CACHE/libibverbs the headers and the library of libibverbs of Debian 12, of
# Debian 13 and of the next one, for two processors, to compare ours with:
#
#	CACHE/libibverbs/{bookworm,trixie,testing}-{amd64,arm64}/
#		include/infiniband/
#		libibverbs.so.1
#		version
#
# The packages are downloaded from the mirror that this machine uses, and unpacked,
# never installed. What is there already is kept; remove CACHE/libibverbs to get newer
# ones.
set -Eeuo pipefail
trap 'echo "releases.sh: line $LINENO: failed" >&2' ERR

cache=$(realpath -m "$1")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -e "$cache/libibverbs" ] || exit 0

work=$(mktemp -d "$cache/libibverbs.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial archives files
touch status # no package is installed, so none limits what can be had

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
if [ -z "$mirror" ]; then
	echo "releases.sh: apt knows no mirror: is this Debian 12, after apt-get update?" >&2
	exit 1
fi
for suite in bookworm trixie testing; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >sources
apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=/dev/null
	-o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work"
	-o APT::Architectures=amd64,arm64 -o Acquire::Languages=none
	-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root)
"${apt[@]}" update
for suite in bookworm trixie testing; do
	for arch in amd64 arm64; do
		to=files/$suite-$arch
		mkdir -p debs root "$to"
		(cd debs && "${apt[@]}" download "libibverbs1:$arch/$suite" "libibverbs-dev:$arch/$suite")
		for package in debs/*.deb; do
			dpkg-deb -x "$package" root
		done
		mkdir "$to/include"
		cp -r root/usr/include/infiniband "$to/include/"
		cp -L root/usr/lib/*/libibverbs.so.1 "$to/"
		dpkg-deb -f debs/libibverbs1_*.deb Version >"$to/version"
		rm -r debs root
	done
done
chmod 755 files
mv files "$cache/libibverbs"
