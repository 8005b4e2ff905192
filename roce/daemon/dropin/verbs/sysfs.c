/* Where the device's files are: in a tree that the daemon keeps beside its socket, SOCKET.d/sys. */
#include "lib.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char tree[PATH_LEN + sizeof(".d/sys")];

/* find_tree takes that of the first daemon that there is. */
static void find_tree(void)
{
	char paths[DAEMON_PATHS][PATH_LEN];
	int n = daemon_paths(paths);

	for (int i = 0; i < n; i++) {
		snprintf(tree, sizeof(tree), "%.*s.d/sys", (int)PATH_LEN, paths[i]);
		if (!access(tree, F_OK))
			return;
	}
	snprintf(tree, sizeof(tree), "/sys");
}

EXPORT const char *ibv_get_sysfs_path(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_tree);
	return tree;
}

/* ibv_read_sysfs_file reads a line without its end, and returns its length, or -1. */
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[4096];
	ssize_t n;
	int fd;

	if (!size || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n <= 0)
		return (int)n;
	if (buf[n - 1] == '\n')
		n--;
	else if ((size_t)n == size)
		return -1;
	buf[n] = 0;
	return (int)n;
}
