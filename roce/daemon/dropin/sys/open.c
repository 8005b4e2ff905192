/*
 * open, openat and fopen, with the names that they have for large files and in programs that are built with
 * _FORTIFY_SOURCE.
 *
 * A path of the tree either is a file there, which libc opens by its real path, or one of those that are made when
 * they are opened (sys_special): counters, rdma_cm's device and attributes of empty GID rows. sys_map returns the
 * path itself if it is not in the tree, so all others cost a comparison of a few bytes and a call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"

/* What <fcntl.h> does not declare. */
extern int __open_2(const char *path, int flags);
extern int __openat_2(int dir, const char *path, int flags);
extern int __open64_2(const char *path, int flags);
extern int __openat64_2(int dir, const char *path, int flags);

/* MODE_OF takes the third argument of open, which is there if a file may be made. O_TMPFILE has the bit of
 * O_DIRECTORY, so all of its bits are compared. */
#define MODE_OF(flags) \
	({ \
		mode_t mode_ = 0; \
		if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
			va_list ap_; \
			va_start(ap_, flags); \
			mode_ = va_arg(ap_, mode_t); \
			va_end(ap_); \
		} \
		mode_; \
	})

#define DEFINE_OPEN(name, name_2) \
	EXPORT int name(const char *path, int flags, ...) \
	{ \
		mode_t mode = MODE_OF(flags); \
		struct sys_path room; \
		int fd; \
		path = sys_map(path, &room); \
		if (path == room.text && sys_special(path, flags, &fd)) \
			return fd; \
		return NEXT(name)(path, flags, mode); \
	} \
	EXPORT int name_2(const char *path, int flags) \
	{ \
		struct sys_path room; \
		int fd; \
		path = sys_map(path, &room); \
		if (path == room.text && sys_special(path, flags, &fd)) \
			return fd; \
		return NEXT(name_2)(path, flags); \
	}

#define DEFINE_OPENAT(name, name_2) \
	EXPORT int name(int dir, const char *path, int flags, ...) \
	{ \
		mode_t mode = MODE_OF(flags); \
		struct sys_path room; \
		int fd; \
		path = sys_map_at(dir, path, &room); \
		if (path == room.text && sys_special(path, flags, &fd)) \
			return fd; \
		return NEXT(name)(dir, path, flags, mode); \
	} \
	EXPORT int name_2(int dir, const char *path, int flags) \
	{ \
		struct sys_path room; \
		int fd; \
		path = sys_map_at(dir, path, &room); \
		if (path == room.text && sys_special(path, flags, &fd)) \
			return fd; \
		return NEXT(name_2)(dir, path, flags); \
	}

/* A stream of such a file is one of its descriptor; all others are libc's. */
#define DEFINE_FOPEN(name) \
	EXPORT FILE *name(const char *path, const char *mode) \
	{ \
		struct sys_path room; \
		FILE *f; \
		int fd; \
		path = sys_map(path, &room); \
		if (path != room.text || !sys_special(path, flags_of(mode), &fd)) \
			return NEXT(name)(path, mode); \
		if (fd < 0) \
			return NULL; \
		f = fdopen(fd, mode); \
		if (!f) \
			close(fd); \
		return f; \
	}

/* sys_special opens a file that is made when it is opened. True: that is what the path is, and *fd is the descriptor,
 * or -1 with errno. The path is one in the tree. */
static bool sys_special(const char *path, int flags, int *fd)
{
	return sys_counter(path, flags, fd) || sys_cm(path, flags, fd) || sys_gid_attr(path, flags, fd);
}

/* flags_of returns the flags of open for a mode of fopen, as far as sys_special looks at them. */
static int flags_of(const char *mode)
{
	int flags = O_RDONLY;

	if (strchr(mode, '+'))
		flags = O_RDWR;
	else if (mode[0] != 'r')
		flags = O_WRONLY;
	return strchr(mode, 'e') ? flags | O_CLOEXEC : flags;
}

DEFINE_OPEN(open, __open_2)
DEFINE_OPENAT(openat, __openat_2)
DEFINE_FOPEN(fopen)
#ifdef __GLIBC__
DEFINE_OPEN(open64, __open64_2)
DEFINE_OPENAT(openat64, __openat64_2)
DEFINE_FOPEN(fopen64)
#endif
