/* Where the daemon is: the rules of docs/abi.md, "The control socket". */
#include "client.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* own_dir reports whether a path is a directory of this user, no link to one, to which nobody else may write. */
static bool own_dir(const char *path)
{
	struct stat s;

	return !fstatat(AT_FDCWD, path, &s, AT_SYMLINK_NOFOLLOW) && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
	       !(s.st_mode & (S_IWGRP | S_IWOTH));
}

/* daemon_paths fills in the paths where a daemon may listen, and returns how many there are: 0 if GOROCED_SOCKET is
 * longer than a socket's path may be. */
int daemon_paths(char paths[DAEMON_PATHS][PATH_LEN])
{
	const char *named = secure_getenv("GOROCED_SOCKET"), *run = secure_getenv("XDG_RUNTIME_DIR");
	char own[sizeof("/tmp/goroce-4294967295")];
	int n = 0;

	if (named && *named)
		return snprintf(paths[0], PATH_LEN, "%s", named) < (int)PATH_LEN;
	if (run && *run == '/' && snprintf(paths[0], PATH_LEN, "%s/goroce/goroced.sock", run) < (int)PATH_LEN)
		n = 1;
	/* Anybody can make a directory in /tmp: a false daemon there would get this program's memory. */
	snprintf(own, sizeof(own), "/tmp/goroce-%u", geteuid());
	if (own_dir(own))
		snprintf(paths[n++], PATH_LEN, "%s/goroced.sock", own);
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
	if (silent())
		return;
	fprintf(stderr,
		"goroce: no RDMA device: no daemon at %s (%s); start one with `goroced serve`, or run the program by "
		"`goroced run`\n",
		path, strerror(err));
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
