package socket

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Tmp is where everybody may make directories. Tests have another.
var Tmp = "/tmp"

// Private returns the directory of a user's daemon where there is no runtime directory of the user's own. It is not in
// $TMPDIR, which differs from session to session: there must be one daemon.
func Private(uid int) string { return filepath.Join(Tmp, fmt.Sprintf("goroce-%d", uid)) }

// Runtime returns the runtime directory of a user, as XDG_RUNTIME_DIR names it but without symbolic links; "" if it
// names none. The error says why the directory that it names is not used: programs that are started by `su` without
// `-` have that of another user, and would send descriptors of their memory to a daemon of that user.
func Runtime(uid int, getenv func(string) string) (string, error) {
	named := getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(named) {
		return "", nil // the specification has it ignored
	}
	dir, err := filepath.EvalSymlinks(named)
	if err == nil {
		err = private(dir, uid)
	}
	if err != nil {
		return "", fmt.Errorf("XDG_RUNTIME_DIR is ignored: %w", err)
	}
	return dir, nil
}

// IsOwn reports whether a path is a directory of this user, no link to one, to which nobody else may write, and which
// nobody but root can replace. Anybody can make a directory in Tmp, and clients would send descriptors of their memory
// to whoever listens in it.
func IsOwn(dir string) bool { return private(dir, os.Geteuid()) == nil }

// private returns an error unless dir is a user's alone, as IsOwn has it. It matches fs.ErrPermission if dir is there.
func private(dir string, uid int) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory: %w", dir, fs.ErrPermission)
	case owner(info) != uid:
		return fmt.Errorf("%s is user %d's, not user %d's: %w", dir, owner(info), uid, fs.ErrPermission)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("others than user %d may write to %s: %w", uid, dir, fs.ErrPermission)
	}
	root, err := os.Lstat("/")
	if err != nil {
		return err
	}
	dir, err = filepath.EvalSymlinks(dir)
	for up := filepath.Dir(dir); err == nil && up != dir; dir, up = up, filepath.Dir(up) {
		err = keeps(up, uid, owner(root))
	}
	return err
}

// keeps returns an error if others than root and a user could replace what is in a directory: it must be one of
// theirs, and others may write to it only if it is sticky.
//
// In a user namespace all files of users that it does not map seem to be user 65534's, those of the machine's root
// among them. Root cannot be told from the others there, so whoever owns "/", and thereby all below it, is taken for
// root. Another user that is not mapped could pass as root by that, but only as the owner of a parent: the directory
// itself must be this user's, and 65534 is not this user unless it is so outside of all namespaces, too.
func keeps(dir string, uid, root int) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case owner(info) != uid && owner(info) != 0 && owner(info) != root:
		return fmt.Errorf("%s, above it, is user %d's: %w", dir, owner(info), fs.ErrPermission)
	case info.Mode()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("others than user %d may write to %s, above it: %w", uid, dir, fs.ErrPermission)
	}
	return nil
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// Take makes the directory of a daemon's sockets, if it is not there. That of Private must be this user's own (IsOwn);
// Take closes it to all other users.
func Take(dir string) error {
	if dir != Private(os.Geteuid()) {
		return os.MkdirAll(dir, 0o755)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	if !IsOwn(dir) {
		return fmt.Errorf("%s is another user's, or others may write to it or to a parent; set XDG_RUNTIME_DIR, or "+
			"name the sockets by --socket and --admin: %w", dir, fs.ErrPermission)
	}
	return os.Chmod(dir, 0o700)
}
