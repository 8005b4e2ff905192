/* Where the daemon is: the rules of docs/abi.md, "The control socket". */
#include "client.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OTHERS_WRITE = S_IWGRP | S_IWOTH };

/* open_dir opens a directory as a place only. It makes the system call itself: in libgoroce-sys.so openat and the like
 * lead here. */
static int open_dir(int at, const char *path, int flags)
{
	return (int)syscall(SYS_openat, at, path, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
}

/* keeps reports whether only root and this user can replace what is in a directory. In a user namespace root's files
 * seem to be those of user 65534, as do all that are of users whom the namespace does not map; whoever owns "/" is
 * taken for root, therefore. */
static bool keeps(const struct stat *dir, const struct stat *root)
{
	bool ours = dir->st_uid == geteuid() || dir->st_uid == 0 || dir->st_uid == root->st_uid;

	return ours && (!(dir->st_mode & OTHERS_WRITE) || dir->st_mode & S_ISVTX);
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* kept reports whether only root and this user can put another directory in the place of an open one. It looks at all
 * that are above. */
static bool kept(int fd, const struct stat *root)
{
	struct stat s, up;
	bool good = !fstat(fd, &s);

	for (int next, at = fd; good && !same(&s, root); at = next, s = up) {
		next = open_dir(at, "..", 0);
		good = next >= 0 && !fstat(next, &up) && keeps(&up, root) && !same(&s, &up);
		if (at != fd)
			close(at);
		if (next >= 0 && (!good || same(&up, root)))
			close(next);
	}
	return good;
}

/* own_dir reports whether an open directory is this user's, nobody else may write to it, and only root and this user
 * can replace it. */
static bool own_dir(int fd)
{
	struct stat s, root;
	int top = open_dir(AT_FDCWD, "/", 0);
	bool own = top >= 0 && !fstat(top, &root) && !fstat(fd, &s) && s.st_uid == geteuid() &&
		   !(s.st_mode & OTHERS_WRITE) && kept(fd, &root);

	if (top >= 0)
		close(top);
	return own;
}

/* runtime_dir writes the directory that XDG_RUNTIME_DIR names, without symbolic links, to buf. It returns EACCES if it
 * is not this user's alone: a program that was started by `su` without `-` has that of another user, whose daemon would
 * get this program's memory. ENOENT: none is named, or it is not there. */
static int runtime_dir(char *buf, size_t size)
{
	const char *run = secure_getenv("XDG_RUNTIME_DIR");
	char link[sizeof("/proc/self/fd/2147483647")];
	ssize_t n = -1;
	int fd = run && *run == '/' ? open_dir(AT_FDCWD, run, 0) : -1;

	if (fd < 0)
		return ENOENT;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (own_dir(fd))
		n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, size - 1);
	close(fd);
	if (n < 0)
		return EACCES;
	buf[n] = 0;
	return 0;
}

/* daemon_paths fills in the paths where a daemon may listen, and returns how many there are: 0 if GOROCED_SOCKET is
 * longer than a socket's path may be. */
int daemon_paths(char paths[DAEMON_PATHS][PATH_LEN])
{
	const char *named = secure_getenv("GOROCED_SOCKET");
	char own[sizeof("/tmp/goroce-4294967295")], run[PATH_MAX];
	int n = 0, fd;

	if (named && *named)
		return snprintf(paths[0], PATH_LEN, "%s", named) < (int)PATH_LEN;
	if (!runtime_dir(run, sizeof(run)) &&
	    snprintf(paths[0], PATH_LEN, "%s/goroce/goroced.sock", run) < (int)PATH_LEN)
		n = 1;
	/* Anybody can make a directory in /tmp: a false daemon there would get this program's memory. */
	snprintf(own, sizeof(own), "/tmp/goroce-%u", geteuid());
	fd = open_dir(AT_FDCWD, own, O_NOFOLLOW);
	if (fd >= 0 && own_dir(fd))
		snprintf(paths[n++], PATH_LEN, "%s/goroced.sock", own);
	if (fd >= 0)
		close(fd);
	snprintf(paths[n++], PATH_LEN, "/run/goroce/goroced.sock");
	return n;
}

int daemon_hello(struct control *c, struct goroce_hello_reply *r)
{
	struct goroce_hello hello = {GOROCE_MAGIC, GOROCE_VERSION, GOROCE_VERSION};
	struct call call = {
		.op = GOROCE_HELLO, .body = &hello, .len = sizeof(hello), .give = -1, .reply = r, .size = sizeof(*r),
	};
	int err = control_call(c, &call);

	if (!err && r->devices > sizeof(r->names) / sizeof(*r->names))
		return EPROTO;
	return err;
}

/* silent reports whether the user wants no advice, or has had it. */
static bool silent(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	return quiet() || atomic_flag_test_and_set(&told);
}

/* missing says once what to start. */
static void missing(const char *path, int err)
{
	char run[PATH_MAX];

	if (silent())
		return;
	fprintf(stderr,
		"goroce: no RDMA device: no daemon at %s (%s)%s; start one with `goroced serve`, or run the program by "
		"`goroced run`\n",
		path, strerror(err),
		runtime_dir(run, sizeof(run)) == EACCES
			? ", and XDG_RUNTIME_DIR is ignored: it, or a directory above, is not this user's alone" : "");
}

/* daemon_dial connects to the first daemon that listens. ENOENT: there is none, and the user was told. ENAMETOOLONG: no
 * socket can have the path that the user names, who was told. Other errors are of a daemon that is there. */
int daemon_dial(struct control *c, char path[PATH_LEN], struct goroce_hello_reply *r)
{
	char paths[DAEMON_PATHS][PATH_LEN];
	int n = daemon_paths(paths), err = ENOENT;

	if (!n) {
		if (!silent())
			fprintf(stderr, "goroce: GOROCED_SOCKET is longer than %zu bytes, the most that the path of a socket may "
				"have; name a shorter path\n", PATH_LEN - 1);
		return ENAMETOOLONG;
	}
	for (int i = 0; i < n; i++) {
		memcpy(path, paths[i], PATH_LEN);
		err = control_dial(c, path);
		debug("connect to %s: %s", path, err ? strerror(err) : "done");
		if (err == ENOENT || err == ECONNREFUSED || err == ENOTDIR)
			continue;
		if (err)
			return err;
		err = daemon_hello(c, r);
		if (err)
			control_close(c);
		return err;
	}
	missing(path, err);
	return ENOENT;
}
