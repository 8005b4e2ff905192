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

// IsOwn reports whether a path is a directory of this user, no link to one, to which nobody else may write. Anybody can
// make a directory in Tmp, and clients would send descriptors of their memory to whoever listens in it.
func IsOwn(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() && info.Mode()&0o022 == 0
}

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
		return fmt.Errorf("%s is another user's, or others may write to it; set XDG_RUNTIME_DIR, or name the sockets "+
			"by --socket and --admin: %w", dir, fs.ErrPermission)
	}
	return os.Chmod(dir, 0o700)
}
