/*
 * stat, access and their kin. Programs that were built for a glibc before 2.33 call __xstat and its sisters, which
 * have the version of struct stat as first argument. Each function has a name of its own for large files in glibc,
 * and none in musl, where off_t is always long enough.
 *
 * What the tree has in /dev/infiniband are links to /dev/null, so stat finds a character device as with the kernel;
 * only its device number is another one. lstat finds a link. fstat of a channel's descriptor is in cm_calls.c.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sys.h"

#define DEFINE_STAT(name, type) \
	EXPORT int name(const char *path, type *st) \
	{ \
		struct sys_path room; \
		return NEXT(name)(sys_map(path, &room), st); \
	}

#define DEFINE_FSTATAT(name, type) \
	EXPORT int name(int dir, const char *path, type *st, int flags) \
	{ \
		struct sys_path room; \
		return NEXT(name)(dir, sys_map_at(dir, path, &room), st, flags); \
	}

#define DEFINE_XSTAT(name, type) \
	extern int name(int version, const char *path, type *st); \
	EXPORT int name(int version, const char *path, type *st) \
	{ \
		struct sys_path room; \
		return NEXT(name)(version, sys_map(path, &room), st); \
	}

#define DEFINE_FXSTATAT(name, type) \
	extern int name(int version, int dir, const char *path, type *st, int flags); \
	EXPORT int name(int version, int dir, const char *path, type *st, int flags) \
	{ \
		struct sys_path room; \
		return NEXT(name)(version, dir, sys_map_at(dir, path, &room), st, flags); \
	}

DEFINE_STAT(stat, struct stat)
DEFINE_STAT(lstat, struct stat)
DEFINE_FSTATAT(fstatat, struct stat)
#ifdef __GLIBC__
DEFINE_STAT(stat64, struct stat64)
DEFINE_STAT(lstat64, struct stat64)
DEFINE_FSTATAT(fstatat64, struct stat64)
DEFINE_XSTAT(__xstat, struct stat)
DEFINE_XSTAT(__xstat64, struct stat64)
DEFINE_XSTAT(__lxstat, struct stat)
DEFINE_XSTAT(__lxstat64, struct stat64)
DEFINE_FXSTATAT(__fxstatat, struct stat)
DEFINE_FXSTATAT(__fxstatat64, struct stat64)
#endif

/* ls -l asks for attributes, too. */
EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	struct sys_path room;

	return NEXT(getxattr)(sys_map(path, &room), name, value, size);
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	struct sys_path room;

	return NEXT(lgetxattr)(sys_map(path, &room), name, value, size);
}

#ifdef STATX_TYPE
EXPORT int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *stx)
{
	struct sys_path room;

	return NEXT(statx)(dir, sys_map_at(dir, path, &room), flags, mask, stx);
}
#endif


EXPORT int access(const char *path, int mode)
{
	struct sys_path room;

	return NEXT(access)(sys_map(path, &room), mode);
}

EXPORT int eaccess(const char *path, int mode)
{
	struct sys_path room;

	return NEXT(eaccess)(sys_map(path, &room), mode);
}

EXPORT int euidaccess(const char *path, int mode)
{
	struct sys_path room;

	return NEXT(euidaccess)(sys_map(path, &room), mode);
}

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	struct sys_path room;

	return NEXT(faccessat)(dir, sys_map_at(dir, path, &room), mode, flags);
}
