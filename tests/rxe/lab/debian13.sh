#!/bin/bash
# debian13.sh CACHE
#
# Keeps in CACHE/debian13 what a program of Debian 12 needs to run on the rdma-core
# of Debian 13, which has FLUSH: libibverbs, its provider for rdma_rxe, and the C
# library that they were linked with, loader included. The packages are downloaded
# from the mirror that this machine uses, and unpacked, never installed. What is
# there already is kept; remove CACHE/debian13 to get newer ones.
set -Eeuo pipefail
trap 'echo "debian13.sh: line $LINENO: failed" >&2' ERR

cache=$(realpath -m "$1")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -e "$cache/debian13/versions" ] || exit 0

work=$(mktemp -d "$cache/debian13.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial archives root files

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
if [ -z "$mirror" ]; then
	echo "debian13.sh: apt knows no mirror: is this Debian 12, after apt-get update?" >&2
	exit 1
fi
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >sources
apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=/dev/null
	-o Dir::State::lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" download libc6 libibverbs1 ibverbs-providers
for package in ./*.deb; do
	dpkg-deb -x "$package" root
done

lib=root/usr/lib/x86_64-linux-gnu
cp -L "$lib"/ld-linux-x86-64.so.2 "$lib"/libc.so.6 "$lib"/libibverbs.so.1 "$lib"/libibverbs/librxe-rdmav*.so files/
basename -a ./*.deb >files/versions
chmod 755 files
rm -rf "$cache/debian13"
mv files "$cache/debian13"
