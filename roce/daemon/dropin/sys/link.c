/*
 * readlink and realpath. What they return are paths in the tree, which are real ones. Links of the tree are relative,
 * or lead out of it to files of the machine, such as those of the network interface: so they are right in both
 * places. A device in /sys/class/infiniband is a link as in the kernel, whose target tells programs that it is
 * virtual.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "sys.h"

EXPORT ssize_t readlink(const char *path, char *buf, size_t size)
{
	struct sys_path room;

	return NEXT(readlink)(sys_map(path, &room), buf, size);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *buf, size_t size)
{
	struct sys_path room;

	return NEXT(readlinkat)(dir, sys_map_at(dir, path, &room), buf, size);
}

EXPORT char *realpath(const char *path, char *resolved)
{
	struct sys_path room;

	return NEXT(realpath)(sys_map(path, &room), resolved);
}

#ifdef __GLIBC__
EXPORT char *canonicalize_file_name(const char *path)
{
	struct sys_path room;

	return NEXT(canonicalize_file_name)(sys_map(path, &room));
}

/* What programs call that are built with _FORTIFY_SOURCE. */
extern ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
extern ssize_t __readlinkat_chk(int dir, const char *path, char *buf, size_t size, size_t room);
extern char *__realpath_chk(const char *path, char *resolved, size_t room);

EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t buf_room)
{
	struct sys_path room;

	return NEXT(__readlink_chk)(sys_map(path, &room), buf, size, buf_room);
}

EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *buf, size_t size, size_t buf_room)
{
	struct sys_path room;

	return NEXT(__readlinkat_chk)(dir, sys_map_at(dir, path, &room), buf, size, buf_room);
}

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t buf_room)
{
	struct sys_path room;

	return NEXT(__realpath_chk)(sys_map(path, &room), resolved, buf_room);
}
#endif
