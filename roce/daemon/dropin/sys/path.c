/* Which paths are in the daemon's tree. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <fcntl.h>

#include "../client/client.h"
#include "sys.h"

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

static bool exists(const char *path)
{
	return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

/* find_tree finds the tree as programs find the daemon's socket; false if a path is too long. */
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

/*
 * inside reports whether a path is one that the tree has. It is called for each path
 * that the program uses.
 */
static bool inside(const char *path)
{
	static const char class[] = "/sys/class/infiniband"; /* and infiniband_verbs */
	static const char misc[] = "/sys/class/misc/rdma_cm/";
	static const char dev[] = "/dev/infiniband";
	char next;

	if (!path || path[0] != '/')
		return false;
	if (path[1] == 's')
		return strncmp(path, class, sizeof(class) - 1) == 0 || strncmp(path, misc, sizeof(misc) - 1) == 0;
	if (path[1] != 'd' || strncmp(path, dev, sizeof(dev) - 1) != 0)
		return false;
	next = path[sizeof(dev) - 1];
	return next == '/' || next == '\0';
}

const char *sys_map(const char *path, struct sys_path *room)
{
	size_t n;

	if (!inside(path) || !find_tree(room))
		return path;
	n = strlen(room->text);
	if (n + strlen(path) >= sizeof(room->text))
		return path;
	strcpy(room->text + n, path);
	return room->text;
}
