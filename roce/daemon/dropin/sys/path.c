/* Which paths are in the daemon's tree. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <fcntl.h>

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

/* tree_of - writes the path of a socket's tree; false if it is too long. */
static bool tree_of(const char *dir, const char *file, struct sys_path *tree)
{
	int n = snprintf(tree->text, sizeof(tree->text), "%s%s.d", dir, file);

	return n > 0 && n < (int)sizeof(tree->text);
}

/* find_tree - finds the tree as programs find the daemon's socket. */
static bool find_tree(struct sys_path *tree)
{
	const char *name = getenv("GOROCED_SOCKET");

	if (name && *name)
		return tree_of(name, "", tree);
	name = getenv("XDG_RUNTIME_DIR");
	if (name && *name == '/' && tree_of(name, "/goroce/goroced.sock", tree) && exists(tree->text))
		return true;
	return tree_of("/run/goroce/goroced.sock", "", tree);
}

/*
 * inside - reports whether a path is one that the tree has. It is called for each path
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
