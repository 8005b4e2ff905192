/*
 * Type and interface of an empty row of the GID table. As in the kernel their files
 * can be opened, and read gives EINVAL: libraries take that as an empty row, and any
 * other failure as a broken device.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

bool sys_gid_attr(const char *path, int flags, int *fd)
{
	struct stat st;

	if (!strstr(path, "/gid_attrs/") || (flags & O_ACCMODE) != O_RDONLY)
		return false;
	*fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags & ~(O_CREAT | O_TRUNC));
	if (*fd < 0 || fstat(*fd, &st) || !S_ISREG(st.st_mode) || st.st_size)
		return true;
	close(*fd);
	*fd = epoll_create1(flags & O_CLOEXEC ? EPOLL_CLOEXEC : 0); /* which has no read: EINVAL */
	return true;
}
