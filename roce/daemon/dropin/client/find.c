/*
 * Where the daemon is: the rules of docs/abi.md, "The control socket". The daemon gets descriptors of this program's
 * memory, so a socket that somebody else could have put there must not be taken for it. That is why directories are
 * looked at, and why variables of the environment do not count in a setuid program (secure_getenv). The Go client has
 * the same rules.
 *
 * All is looked up anew each time: a daemon may have been started meanwhile. libgoroce-sys.so does so for each path
 * that may be in the daemon's tree, from within the program's own open or stat, so daemon_paths allocates no memory,
 * and calls no function that would lead back to it. Descriptors here are of directories as places only, or closed in
 * a moment; a child that inherits one has no right by it.
 */
#include "client.h"

#include <fcntl.h>
#include <grp.h>
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
 * that are above, up to "/". It goes up by "..", from descriptor to descriptor, so nobody can exchange a directory of
 * the path between two looks. Where ".." leads nowhere before "/" is reached, the place is not known, and so not
 * good. */
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
	char link[sizeof("/proc/thread-self/fd/2147483647")];
	ssize_t n = -1;
	int fd = run && *run == '/' ? open_dir(AT_FDCWD, run, 0) : -1;

	if (fd < 0)
		return ENOENT;
	snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
	if (own_dir(fd))
		n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, size - 1);
	close(fd);
	if (n < 0)
		return EACCES;
	buf[n] = 0;
	return 0;
}

/* own_netns returns the number of the network namespace, 0 if /proc does not show it. */
static unsigned long long own_netns(void)
{
	struct stat s = {0};
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/ns/net", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (fstat(fd, &s))
		s.st_ino = 0;
	close(fd);
	return s.st_ino;
}

/* netns_of returns that of the daemon at a socket, 0 if it does not say. */
static unsigned long long netns_of(const char *path)
{
	char file[PATH_LEN + sizeof(".d/netns")], text[32];
	ssize_t n;
	int fd;

	snprintf(file, sizeof(file), "%s.d/netns", path);
	fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	return strtoull(text, NULL, 10);
}

/* Where a daemon may listen, the first choice first. */
struct places {
	char (*paths)[PATH_LEN]; /* DAEMON_PATHS of them */
	int n;
	unsigned long long own, other; /* network namespaces: this one, and that of a daemon that was passed over */
};

/* add_path adds a path unless its daemon says that it is in another network namespace: its devices are those of
 * another network. A daemon that does not say so, or has not been started yet, is a place to try. A path that is too
 * long for a socket is none. */
static void add_path(struct places *to, const char *path, int len)
{
	unsigned long long theirs;

	if (len >= (int)PATH_LEN)
		return;
	theirs = netns_of(path);
	if (theirs && to->own && theirs != to->own)
		to->other = theirs;
	else
		memcpy(to->paths[to->n++], path, (size_t)len + 1);
}

/* add_dir adds the paths of a directory, and those of its directory for this network namespace, if it is there. */
static void add_dir(struct places *to, const char *dir)
{
	char path[PATH_MAX];
	int below, len = snprintf(path, sizeof(path), "%s/goroced.sock", dir);

	add_path(to, path, len);
	snprintf(path, sizeof(path), "%s/netns-%llu", dir, to->own);
	below = open_dir(AT_FDCWD, path, O_NOFOLLOW);
	if (below < 0)
		return;
	close(below);
	len = snprintf(path, sizeof(path), "%s/netns-%llu/goroced.sock", dir, to->own);
	add_path(to, path, len);
}

/* find_places fills in the places where a daemon may listen: none if GOROCED_SOCKET is longer than a socket's path may
 * be. */
static void find_places(struct places *to)
{
	const char *named = secure_getenv("GOROCED_SOCKET");
	char own[sizeof("/tmp/goroce-4294967295")], run[PATH_MAX];
	int fd;

	if (named && *named) {
		to->n = snprintf(to->paths[0], PATH_LEN, "%s", named) < (int)PATH_LEN;
		return;
	}
	to->own = own_netns();
	if (!runtime_dir(run, sizeof(run)) && strlen(run) + sizeof("/goroce") <= sizeof(run))
		add_dir(to, strcat(run, "/goroce"));
	/* Anybody can make a directory in /tmp: a false daemon there would get this program's memory. */
	snprintf(own, sizeof(own), "/tmp/goroce-%u", geteuid());
	fd = open_dir(AT_FDCWD, own, O_NOFOLLOW);
	if (fd >= 0 && own_dir(fd))
		add_dir(to, own);
	if (fd >= 0)
		close(fd);
	add_dir(to, "/run/goroce");
	if (!to->n) /* all are of other namespaces: there is nobody here */
		snprintf(to->paths[to->n++], PATH_LEN, "/run/goroce/netns-%llu/goroced.sock", to->own);
}

/* daemon_paths fills in the paths where a daemon may listen, and returns how many there are: 0 if GOROCED_SOCKET is
 * longer than a socket's path may be. */
int daemon_paths(char paths[DAEMON_PATHS][PATH_LEN])
{
	struct places to = {.paths = paths};

	find_places(&to);
	return to.n;
}

/* daemon_hello agrees on the version of the protocol, and has the names of the daemon's devices. It is the first
 * request on each connection. EPROTO: the daemon speaks another version, or says what cannot be. */
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

/* silent reports whether the user wants no advice, or has had it. Programs list devices often: one line is enough. */
static bool silent(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	return quiet() || atomic_flag_test_and_set(&told);
}

/* missing says once what to start, and what was passed over on the way: path and err are those of the last place. */
static void missing(const char *path, int err, const struct places *p)
{
	char run[PATH_MAX], passed[160] = "";

	if (silent())
		return;
	if (p->other)
		snprintf(passed, sizeof(passed),
			 ", and another one is in the network namespace net:[%llu], this program in net:[%llu]", p->other,
			 p->own);
	fprintf(stderr,
		"goroce: no RDMA device: no daemon at %s (%s)%s%s; start one with `goroced serve`, or run the program by "
		"`goroced run`\n",
		path, strerror(err), passed,
		runtime_dir(run, sizeof(run)) == EACCES
			? ", and XDG_RUNTIME_DIR is ignored: it, or a directory above, is not this user's alone" : "");
}

/* refused says once that this user may not connect to the daemon at path, and who may. */
static void refused(const char *path)
{
	char names[1024], who[96] = "in a directory that this user may not enter";
	struct group group, *found = NULL;
	struct stat st;

	if (silent())
		return;
	if (!stat(path, &st)) {
		getgrgid_r(st.st_gid, &group, names, sizeof(names), &found);
		snprintf(who, sizeof(who), "which is for group %s (%u)", found ? found->gr_name : "without a name", st.st_gid);
	}
	fprintf(stderr,
		"goroce: no RDMA device: this user may not connect to the daemon at %s, %s; become a member, or name the "
		"socket of another daemon in GOROCED_SOCKET\n",
		path, who);
}

/* daemon_dial connects to the first daemon that listens. ENOENT: there is none, and the user was told. ENAMETOOLONG: no
 * socket can have the path that the user names, who was told. Other errors are of a daemon that is there. */
int daemon_dial(struct control *c, char path[PATH_LEN], struct goroce_hello_reply *r)
{
	char paths[DAEMON_PATHS][PATH_LEN];
	struct places places = {.paths = paths};
	int n, err = ENOENT;

	find_places(&places);
	n = places.n;
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
		if (err == EACCES)
			refused(path);
		if (err)
			return err;
		err = daemon_hello(c, r);
		if (err)
			control_close(c);
		return err;
	}
	missing(path, err, &places);
	return ENOENT;
}
