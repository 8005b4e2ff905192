/*
 * libgoroce-sys.so, to be preloaded: programs that look below
 * /sys/class/infiniband* and /dev/infiniband find the tree that the daemon keeps
 * beside its socket, SOCKET.d.
 *
 * The library has no state but the addresses of libc's functions, and the connection
 * to the daemon of a program that connects by address (cm.h): it works in any
 * thread, before constructors and in a child after fork; in signal handlers as far
 * as libc's own functions do, once the function was called outside of one: the first
 * call runs dlsym. Paths that are not in the tree go to libc as they
 * are, at the price of comparing a few bytes.
 */
#ifndef GOROCE_SYS_H
#define GOROCE_SYS_H

#include <stdbool.h>

/* What programs see; all else is hidden. */
#define EXPORT __attribute__((visibility("default")))

/* sys_next returns libc's function of a name that this library interposes; *found keeps the address. */
void *sys_next(void **found, const char *name);
#define NEXT(name) \
	({ \
		static void *found_; \
		(__typeof__(&name))sys_next(&found_, #name); \
	})

/* Room for a path in the tree: little, as programs call libc on small stacks, too. No file of the tree needs more. */
struct sys_path {
	char text[512];
};

/* sys_map returns where a path is in the tree, or the path itself. */
const char *sys_map(const char *path, struct sys_path *room);

/* sys_map_at does so for a path that may be relative to the directory of a descriptor. */
const char *sys_map_at(int dir, const char *path, struct sys_path *room);

/*
 * sys_counter opens a counter.
 * If path, as sys_map has returned it, is a file that the daemon counts in, *fd
 * becomes a descriptor of its present value, or -1 with errno, and the result is
 * true.
 */
bool sys_counter(const char *path, int flags, int *fd);

/* sys_cm opens /dev/infiniband/rdma_cm, likewise: cm.h. */
bool sys_cm(const char *path, int flags, int *fd);

/* sys_gid_attr opens type or interface of a row of the GID table, likewise. */
bool sys_gid_attr(const char *path, int flags, int *fd);

#endif
