/*
 * Which paths are in the daemon's tree, and where they are there. It is asked for each path that a program opens or
 * looks at, so those that cannot be in the tree must cost little, and leave errno alone. Nothing is kept from
 * call to call: a daemon may begin and end while the program runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <fcntl.h>

#include "../client/client.h"
#include "sys.h"

/* sys_next: two threads may look the function up at once, and find the same. RTLD_NEXT looks behind this library, in
 * libc or in another one that is preloaded. */
void *sys_next(void **found, const char *name)
{
	void *f = __atomic_load_n(found, __ATOMIC_ACQUIRE);

	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		/* What glibc has for older programs only has to be asked for by its version: amd64's, arm64's. */
		if (!f)
			f = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
		if (!f)
			f = dlvsym(RTLD_NEXT, name, "GLIBC_2.17");
		if (!f)
			abort(); /* a program calls only what its libc has */
		__atomic_store_n(found, f, __ATOMIC_RELEASE);
	}
	return f;
}

/* exists makes the system call itself: access is one of this library's, and would come back here. */
static bool exists(const char *path)
{
	return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

/* find_tree finds the tree as programs find the daemon's socket, that of the first place which has one; false if a
 * path is too long. If there is none, it is the last place's: the files are not there, as without a device. */
static bool find_tree(struct sys_path *tree)
{
	char paths[DAEMON_PATHS][PATH_LEN];
	int n = daemon_paths(paths);

	for (int i = 0; i < n; i++) {
		int len = snprintf(tree->text, sizeof(tree->text), "%.*s.d", (int)PATH_LEN, paths[i]);

		if (len >= (int)sizeof(tree->text))
			return false;
		if (exists(tree->text))
			break;
	}
	return n > 0;
}

/* What the tree has: directories with all that is in them, and beginnings of names. */
static const struct place {
	const char *path;
	bool begins; /* or is the directory itself */
} places[] = {
	{ "/sys/class/infiniband", true }, /* and infiniband_verbs */
	{ "/sys/devices/virtual/infiniband", false },
	{ "/sys/class/misc/rdma_cm", false },
	{ "/dev/infiniband", false },
};

#define FOR_PLACES(p) for (const struct place *p = places; p < places + sizeof(places) / sizeof(*places); p++)

/* heads reports whether a path is a place, or begins with it. */
static bool heads(const char *path, const char *place, bool begins)
{
	size_t n = strlen(place);

	return strncmp(path, place, n) == 0 && (begins || path[n] == '/' || path[n] == '\0');
}

/*
 * inside reports whether a path is one that the tree has. It is called for each path
 * that the program uses.
 */
static bool inside(const char *path)
{
	if (path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
		return false;
	FOR_PLACES(p)
		if (heads(path, p->path, p->begins))
			return true;
	return false;
}

/*
 * may_be_inside reports whether a path that is relative to a directory may be one of
 * the tree's: its beginning is the end of a place, or it is a file that is made when
 * it is opened. Only then it is worth a system call to learn what the directory is.
 */
static bool may_be_inside(const char *path)
{
	FOR_PLACES(p)
		for (const char *tail = p->path; (tail = strchr(tail, '/')); )
			if (heads(path, ++tail, p->begins))
				return true;
	return strstr(path, "counters/") || strstr(path, "gid_attrs/");
}

/* join puts the path of a directory before one that is relative to it; false if it cannot. What /proc says of a
 * descriptor of a socket or a pipe does not begin with a slash, and is no directory. /proc/self would be empty once the
 * first thread has ended. */
static bool join(int dir, const char *path, struct sys_path *whole)
{
	char link[sizeof("/proc/thread-self/fd/2147483647")] = "/proc/thread-self/cwd";
	ssize_t n;

	if (dir != AT_FDCWD)
		snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", dir);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, whole->text, sizeof(whole->text));
	if (n <= 0 || whole->text[0] != '/')
		return false;
	if (n == 1)
		n = 0; /* the root */
	if (n + 1 + strlen(path) >= sizeof(whole->text))
		return false;
	whole->text[n] = '/';
	strcpy(whole->text + n + 1, path);
	return true;
}

/*
 * sys_map_at. A relative path is looked at only if its beginning may lead into the tree, or end at a file that is
 * made when it is opened. Joined with its directory it is a path of the machine, such as /sys/class/infiniband, or
 * one in the tree, if the program has gone there before; in the second case only the files that are made need the
 * whole path. Any doubt, or want of room, gives the path to libc as it is.
 */
const char *sys_map_at(int dir, const char *path, struct sys_path *room)
{
	struct sys_path whole;
	const char *from = path;
	int saved = errno;
	size_t n;

	if (!path)
		return path;
	if (path[0] != '/') {
		if (!may_be_inside(path) || !join(dir, path, &whole)) {
			errno = saved;
			return path;
		}
		errno = saved;
		from = whole.text;
	}
	if (!inside(from) && from == path)
		return path;
	used();
	if (!find_tree(room))
		return path;
	n = strlen(room->text);
	if (strncmp(from, room->text, n) == 0 && from[n] == '/')
		n = 0; /* a directory in the tree */
	else if (!inside(from))
		return path;
	if (n + strlen(from) >= sizeof(room->text))
		return path;
	strcpy(room->text + n, from);
	return room->text;
}

const char *sys_map(const char *path, struct sys_path *room)
{
	return sys_map_at(AT_FDCWD, path, room);
}
