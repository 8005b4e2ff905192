#!/bin/bash
# kernel.sh CACHE SERIES...
#
# Keeps stock kernels of Debian 12 (amd64) unpacked for the rxe lab. The lab and
# .ci/packages run it. It makes:
#
#	CACHE/SERIES/vmlinux               decompressed: emulation takes seconds for that
#	CACHE/SERIES/lib/modules/RELEASE/
#	CACHE/SERIES/release               the text RELEASE, written last
#
# SERIES is 6.1 (the release's own kernel) or 6.12 (the newest from the same
# archive). The packages are downloaded and unpacked, never installed. What is
# there already is kept; remove CACHE/SERIES to get a newer kernel.
set -Eeuo pipefail
trap 'echo "kernel.sh: line $LINENO: failed" >&2' ERR

package_of() {
	case $1 in
	6.1) apt-cache depends linux-image-amd64 |
		sed -n 's/^ *Depends: \(linux-image-6\.1\..*-amd64\)$/\1/p' | tail -n 1 ;;
	6.12) apt-cache pkgnames linux-image-6.12. |
		grep -E '^linux-image-6\.12\.[0-9]+\+deb12-amd64-unsigned$' | sort -V | tail -n 1 ;;
	*) echo "kernel.sh: series $1 is not known: 6.1 and 6.12 are" >&2; exit 2 ;;
	esac
}

# Package lists may be missing or older than the archive: then they are fetched,
# once.
download() {
	local series=$1 package
	package=$(package_of "$series")
	if [ -n "$package" ] && apt-get -qq -o APT::Sandbox::User=root download "$package"; then
		return
	fi
	apt-get -qq update
	package=$(package_of "$series")
	if [ -z "$package" ]; then
		echo "kernel.sh: the package lists hold no kernel $series: is this Debian 12 with bookworm-security?" >&2
		exit 1
	fi
	apt-get -qq -o APT::Sandbox::User=root download "$package"
}

# Prints the ELF image inside a bzImage. The header's fields setup_sects,
# payload_offset and payload_length (Linux Documentation/arch/x86/boot.rst) say
# where it is; the payload's last four bytes are its decompressed length.
extract_vmlinux() {
	local sectors offset length decompress
	sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$1")
	offset=$(od -An -tu4 -j $((0x248)) -N 4 "$1")
	length=$(od -An -tu4 -j $((0x24c)) -N 4 "$1")
	offset=$(((sectors + 1) * 512 + offset))
	case $(od -An -tx1 -j "$offset" -N 4 "$1") in
	' fd 37 7a 58') decompress=xz ;;
	' 28 b5 2f fd') decompress=zstd ;;
	*) echo "kernel.sh: $1 is neither xz nor zstd" >&2; exit 1 ;;
	esac
	head -c $((offset + length - 4)) "$1" | tail -c $((length - 4)) | "$decompress" -dc
}

# Keeps only what an rxe guest can need, with modules uncompressed for insmod.
unpack() {
	local package=$1 release
	dpkg-deb -x "$package" .
	rm "$package"
	extract_vmlinux boot/vmlinuz-* >vmlinux
	release=$(basename lib/modules/*)
	find "lib/modules/$release" -name '*.ko*' ! -path '*/kernel/arch/x86/*' ! -path '*/kernel/crypto/*' \
		! -path '*/kernel/drivers/char/*' ! -path '*/kernel/drivers/infiniband/*' \
		! -path '*/kernel/drivers/net/*' ! -path '*/kernel/drivers/virtio/*' \
		! -path '*/kernel/fs/configfs/*' ! -path '*/kernel/lib/*' ! -path '*/kernel/net/*' -delete
	rm -rf boot usr "lib/modules/$release"/kernel/drivers/net/{ethernet,wireless}
	find lib/modules -name '*.ko.xz' -exec unxz {} +
	depmod -b . "$release"
	echo "$release" >release
}

prepare() (
	local cache=$1 series=$2
	exec 9>"$cache/lock"
	flock 9
	[ ! -e "$cache/$series/release" ] || exit 0
	work=$(mktemp -d "$cache/unpack.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	cd "$work"
	download "$series"
	unpack ./*.deb
	rm -rf "${cache:?}/$series"
	mv "$work" "$cache/$series"
)

cache=$(realpath -m "$1")
shift
mkdir -p "$cache"
for series; do
	[ -e "$cache/$series/release" ] || prepare "$cache" "$series"
done
