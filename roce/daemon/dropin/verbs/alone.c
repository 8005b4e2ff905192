/*
 * Whether this thread is alone with the memory of its process: nobody else stores into it while it is moved to a file
 * (remap.c). There are four who could:
 *
 * - other threads, also by their system calls, unless they can be made to wait (freeze.c). The library's own (context.c,
 *   watch) touch the library's memory only;
 * - handlers of signals, which the caller has blocked;
 * - the kernel, on behalf of a request that goes on when its call has returned: io_uring, asynchronous I/O, AF_XDP,
 *   drivers that pin memory, userfaultfd. All of these are behind a descriptor, or a mapping of one. Descriptors that
 *   are known to be harmless are listed; any other means that it cannot be said;
 * - the daemon, on behalf of peers: for memory of regions that it reads and writes by system calls (regions_overlap).
 *
 * A child that shares all memory (clone with CLONE_VM) is not seen, nor another process that uses process_vm_writev.
 */
#include "lib.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With more descriptors, or longer tables, looking costs more than registering: then it is not said. */
enum { MOST_DESCRIPTORS = 1024, MOST_TEXT = 1 << 20 };

#ifndef AF_XDP
#define AF_XDP 44
#endif

atomic_uint watchers;

/* one_thread: the kernel counts the threads of a process in the links of their directory. */
bool one_thread(void)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink == 2 + 1 + atomic_load(&watchers);
}

/* harmless_device reports whether a character device stores nothing into memory once its calls have returned: null,
 * zero, full, random and urandom, and terminals. */
static bool harmless_device(dev_t dev)
{
	static const unsigned char memory[] = {3, 5, 7, 8, 9}; /* minor numbers of major 1 (devices.txt) */
	enum { MEMORY = 1, TTY = 4, TTY_AUX = 5, PTY_FIRST = 136, PTY_LAST = 143 };
	unsigned int major = major(dev);

	if (major == MEMORY)
		return minor(dev) < 16 && memchr(memory, (int)minor(dev), sizeof(memory));
	return major == TTY || major == TTY_AUX || (major >= PTY_FIRST && major <= PTY_LAST);
}

/* harmless_anonymous does so for a descriptor without a file. /proc names its kind. */
static bool harmless_anonymous(int dir, const char *fd)
{
	static const char *const kinds[] = {"[eventfd]", "[eventpoll]", "[timerfd]", "[signalfd]", "inotify", "[pidfd]"};
	const char prefix[] = "anon_inode:";
	char name[64];
	ssize_t n = readlinkat(dir, fd, name, sizeof(name) - 1);

	if (n < 0)
		return false;
	name[n] = 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strncmp(name, prefix, sizeof(prefix) - 1) && !strcmp(name + sizeof(prefix) - 1, kinds[i]))
			return true;
	}
	return false;
}

static bool harmless_socket(int fd)
{
	int domain;
	socklen_t len = sizeof(domain);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain != AF_XDP;
}

static bool harmless(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, 0))
		return false;
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFIFO:
	case S_IFBLK:
		return true;
	case S_IFSOCK:
		return harmless_socket(atoi(name));
	case S_IFCHR:
		return harmless_device(st.st_rdev);
	}
	return harmless_anonymous(dir, name);
}

static bool harmless_descriptors(void)
{
	DIR *dir = opendir("/proc/thread-self/fd");
	struct dirent *entry;
	int n = 0;

	if (!dir)
		return false;
	while ((entry = readdir(dir))) {
		if (*entry->d_name != '.' && (++n > MOST_DESCRIPTORS || !harmless(dirfd(dir), entry->d_name)))
			break;
	}
	closedir(dir);
	return !entry;
}

/* each_line reports whether all lines of a file of /proc are right. No child gets its descriptor (fds.c). */
static bool each_line(const char *path, bool (*right)(const char *line))
{
	char *line = NULL;
	size_t room = 0, all = 0;
	bool ok;
	FILE *f;
	int fd;

	fds_begin();
	fd = fds_add(open(path, O_RDONLY | O_CLOEXEC));
	fds_end();
	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	ok = f;
	while (ok && getline(&line, &room, f) > 0)
		ok = (all += strlen(line)) <= MOST_TEXT && right(line);
	ok = ok && !ferror(f);
	free(line);
	if (f) {
		fds_give(fd);
		fclose(f);
	} else {
		fds_close(fd);
	}
	return ok;
}

static bool begins(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

/* harmless_mapping: rings of io_uring and of sockets, contexts of asynchronous I/O, and devices stay mapped when their
 * descriptors are closed. Names of files begin with /. */
static bool harmless_mapping(const char *line)
{
	int name = 0;

	if (sscanf(line, "%*s %*s %*s %*s %*s %n", &name) < 0 || !name)
		return false;
	line += name;
	if (begins(line, "/dev/"))
		return begins(line, "/dev/shm/") || begins(line, "/dev/zero") || begins(line, "/dev/hugepages/");
	return !begins(line, "/[aio]") && !begins(line, "anon_inode:") && !begins(line, "socket:");
}

/* unlocked: moved pages would not be locked any more (mlock). */
static bool unlocked(const char *line) { return !begins(line, "VmLck:") || strtoul(line + 6, NULL, 10) == 0; }

/* others_than_threads returns what stands in the way beside threads, of enum goroce_stays; 0 if nothing does. */
uint32_t others_than_threads(void)
{
	if (!harmless_descriptors() || !each_line("/proc/thread-self/maps", harmless_mapping))
		return GOROCE_STAYS_KERNEL;
	return each_line("/proc/thread-self/status", unlocked) ? 0 : GOROCE_STAYS_LOCKED;
}
