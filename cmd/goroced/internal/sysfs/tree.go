// Package sysfs keeps a tree of files beside the daemon's socket that looks like what the kernel shows of a device of
// rdma_rxe below /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband. libgoroce-sys.so
// (roce/daemon/dropin/sys) shows it to programs in these places.
//
//	tree, err := sysfs.Create("/run/goroce/goroced.sock") // goroced.sock.d
//	err = tree.Update(devices)                            // at the beginning, and after each change
//	err = tree.Remove()
//
// Whoever may connect to the socket may read the tree. A file is replaced as a whole, so who reads it finds the old
// or the new state. The file of a counter has its value at the latest Update; programs with the preloaded library read
// the present value from the daemon.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Suffix is what the tree's name has behind that of the socket.
const Suffix = ".d"

// Tree is a tree of files. One goroutine at a time may use it.
type Tree struct {
	dir       string
	group     int
	file, sub fs.FileMode       // permissions of files and of directories
	has       map[string]string // contents by path; those of symbolic links begin with linkTo
	about     map[string]string // files of Say
}

// linkTo precedes the target of a symbolic link among contents. No file begins with it.
const linkTo = "\x00"

// Create creates the tree of a socket, which must be there. The tree has the socket's group, and whoever may write to
// the socket may read and list the tree. Files that a dead daemon has left there are removed. The directory itself may
// be there: a service manager can make it where the daemon could not.
func Create(socket string) (*Tree, error) {
	info, err := os.Stat(socket)
	if err != nil {
		return nil, fmt.Errorf("sysfs tree: %w", err)
	}
	t := &Tree{dir: socket + Suffix, group: int(info.Sys().(*syscall.Stat_t).Gid), file: 0o400, sub: 0o700,
		has: map[string]string{}, about: map[string]string{}}
	for _, who := range []fs.FileMode{0o020, 0o002} { // may connect: group, others
		if info.Mode()&who != 0 {
			t.file |= who << 1
			t.sub |= who<<1 | who>>1
		}
	}
	if err := errors.Join(t.clear(), t.mkdir(t.dir)); err != nil {
		return nil, fmt.Errorf("sysfs tree: %w", err)
	}
	return t, nil
}

// Say adds a file to the tree, with a line about the daemon itself, at the next Update.
func (t *Tree) Say(file, line string) { t.about[file] = line + "\n" }

// Update makes the tree that of these devices.
func (t *Tree) Update(devices []Device) error {
	want := maps.Clone(classFiles)
	maps.Copy(want, t.about)
	for i := range devices {
		devices[i].files(want)
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if text, ok := t.has[path]; !ok || text != want[path] {
			errs = append(errs, t.put(path, want[path]))
		}
	}
	for path := range t.has {
		if _, ok := want[path]; !ok {
			errs = append(errs, os.Remove(filepath.Join(t.dir, path)))
		}
	}
	t.has = want
	if err := errors.Join(errs...); err != nil {
		t.has = map[string]string{} // the next update writes all
		return fmt.Errorf("sysfs tree: %w", err)
	}
	return nil
}

// Remove removes the tree.
func (t *Tree) Remove() error {
	err := t.clear()
	// A directory that a service manager has made, in one that is not the daemon's, stays.
	if gone := os.Remove(t.dir); gone != nil && !errors.Is(gone, fs.ErrPermission) &&
		!errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, syscall.EBUSY) && !errors.Is(gone, syscall.EROFS) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return fmt.Errorf("sysfs tree: %w", err)
	}
	return nil
}

// clear removes what is in the tree, if it is there.
func (t *Tree) clear() error {
	entries, err := os.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(t.dir, e.Name())))
	}
	return err
}

// put writes a file, or a symbolic link, in place of what is there.
func (t *Tree) put(path, text string) error {
	path = filepath.Join(t.dir, path)
	if err := t.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	scratch := filepath.Join(t.dir, ".new")
	if err := os.Remove(scratch); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if target := text[:min(1, len(text))]; target == linkTo {
		if err := os.Symlink(text[1:], scratch); err != nil {
			return err
		}
	} else if err := errors.Join(os.WriteFile(scratch, []byte(text), 0o600), t.permit(scratch, t.file)); err != nil {
		return err
	}
	return os.Rename(scratch, path)
}

// mkdir makes a directory of the tree, and those above it.
func (t *Tree) mkdir(dir string) error {
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if dir == t.dir {
			return t.permit(dir, t.sub)
		}
		return nil
	}
	if dir != t.dir {
		if err := t.mkdir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return t.permit(dir, t.sub)
}

// permit gives a file or directory the group of the socket and permissions.
func (t *Tree) permit(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if int(info.Sys().(*syscall.Stat_t).Gid) != t.group {
		if err := os.Lchown(path, -1, t.group); err != nil {
			return err
		}
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	return os.Chmod(path, mode)
}
