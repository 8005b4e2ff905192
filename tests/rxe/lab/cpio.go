package lab

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// archive writes an initramfs: a cpio archive in the "newc" format (Linux
// Documentation/driver-api/early-userspace/buffer-format.rst). The same input
// gives the same bytes.
type archive struct {
	buffer bytes.Buffer
	inode  int
	dirs   map[string]bool
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

// addFile adds an ordinary file, after the directories above it.
func (a *archive) addFile(name string, perm uint32, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	a.addDir(path.Dir(name))
	a.entry(name, cpioFile|perm, data)
}

func (a *archive) addDir(name string) {
	if name == "." || a.dirs[name] {
		return
	}
	a.addDir(path.Dir(name))
	if a.dirs == nil {
		a.dirs = make(map[string]bool)
	}
	a.dirs[name] = true
	a.entry(name, cpioDir|0o755, nil)
}

// finish adds the trailer and returns the archive.
func (a *archive) finish() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.buffer.Bytes()
}

// entry writes a header of 13 numbers of 8 hex digits, the name with its NUL,
// and the data; name and data end on multiples of 4.
func (a *archive) entry(name string, mode uint32, data []byte) {
	a.inode++
	const uid, gid, links, mtime, major, minor, rmajor, rminor, check = 0, 0, 1, 0, 0, 0, 0, 0, 0
	fmt.Fprintf(&a.buffer, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, uid, gid, links, mtime, len(data), major, minor, rmajor, rminor, len(name)+1, check)
	a.buffer.WriteString(name)
	a.buffer.WriteByte(0)
	a.align()
	a.buffer.Write(data)
	a.align()
}

func (a *archive) align() {
	for a.buffer.Len()%4 != 0 {
		a.buffer.WriteByte(0)
	}
}
