/*
 * The file that memory is shared from. If it is a memfd of the right kind, the daemon maps it, and then reads and
 * writes the memory as fast as the program. Mappings are read anew each time, as they may change at any time.
 */
#include "lib.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Reading a line takes the kernel 0.2 us, and programs have up to tens of thousands: smaller memory is not worth it. */
enum { WORTH_READING = 64 << 10 };

/* covers finds the file that [from, to) is mapped from: MAP_SHARED, readable and writable, one piece of one file. The
 * piece may be of several mappings: mprotect and madvise split them. */
static bool covers(struct mapped_file *f, struct maps *maps, uintptr_t from, uintptr_t to)
{
	struct mapping *first = &f->map, next;

	if (!maps_find(maps, from, first) || !first->ino)
		return false;
	for (next = *first;;) {
		if (!next.shared || !next.readable || !next.writable || next.dev != first->dev ||
		    next.ino != first->ino || next.offset - first->offset != next.start - first->start)
			return false;
		if (next.end >= to)
			return true;
		if (!maps_find(maps, next.end, &next))
			return false;
	}
}

/* is_file compares device and inode. No other file gets these numbers as long as the file is mapped. */
static bool is_file(const struct mapping *m, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_dev == m->dev && st->st_ino == m->ino;
}

/* file_same reports whether a descriptor is of the file that is mapped. */
bool file_same(const struct mapped_file *f)
{
	struct stat st;

	return !fstat(f->fd, &st) && is_file(&f->map, &st);
}

/* usable reports whether the daemon can map the file of a descriptor for writing. */
static bool usable(int fd)
{
	int mode = fcntl(fd, F_GETFL);

	return mode >= 0 && (mode & O_ACCMODE) == O_RDWR && !(mode & O_PATH);
}

/* own_descriptor sets f->fd to a descriptor of the program's by which the daemon can map the file, or to -1. It reports
 * whether the program may have any descriptor of the file, usable or not. The one that was found last is tried first:
 * programs register many pieces of one file. */
static bool own_descriptor(struct mapped_file *f)
{
	static atomic_int last = -1; /* a guess: the program may have given the number to another file */
	struct dirent *entry;
	bool any = false;
	DIR *dir;

	f->fd = atomic_load(&last);
	if (file_same(f) && usable(f->fd))
		return true;
	dir = opendir("/proc/thread-self/fd");
	if (!dir) {
		f->fd = -1;
		return true; /* there may be some */
	}
	while ((entry = readdir(dir))) {
		f->fd = atoi(entry->d_name);
		if (*entry->d_name == '.' || !file_same(f))
			continue;
		any = true;
		if (usable(f->fd))
			break;
	}
	closedir(dir);
	if (entry)
		atomic_store(&last, f->fd);
	else
		f->fd = -1;
	return any;
}

/* reopen opens a file that the program has mapped and closed, by the mapping, which takes CAP_CHECKPOINT_RESTORE. It is
 * in /proc/self: /proc/thread-self has no map_files. It opens nothing else: to open a device or a FIFO has effects. */
static void reopen(struct mapped_file *f)
{
	struct statfs fs;
	struct stat st;
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/map_files/%jx-%jx", (uintmax_t)f->map.start, (uintmax_t)f->map.end);
	if (statfs(link, &fs) || fs.f_type != TMPFS_MAGIC || stat(link, &st) || !is_file(&f->map, &st))
		return;
	f->fd = open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (f->fd < 0)
		return;
	f->opened = file_same(f);
	if (!f->opened) {
		close(f->fd);
		f->fd = -1;
	}
}

/* file_find finds the file that all of the memory is shared from. It opens nothing: f has no descriptor yet. */
bool file_find(struct mapped_file *f, const void *addr, size_t length)
{
	uintptr_t from = (uintptr_t)addr;
	struct maps maps;
	bool found;

	if (!maps_open(&maps))
		return false;
	found = (!maps.text || length >= WORTH_READING) && covers(f, &maps, from, from + length);
	maps_close(&maps);
	f->offset = f->map.offset + (from - f->map.start);
	return found;
}

/* sealable reports whether the daemon can see to it that nobody takes pages of the file away. Files with names, and of
 * huge pages, are not such files. */
static bool sealable(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || seals & F_SEAL_WRITE ||
			(seals & F_SEAL_SEAL && !(seals & F_SEAL_FUTURE_WRITE)))
		return false;
	return !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC;
}

/*
 * file_open finds a descriptor of a file that the daemon can map. A file is only opened if the program has no
 * descriptor of it: whoever closes one gives up the process's locks of that file (fcntl).
 */
bool file_open(struct mapped_file *f)
{
	f->opened = false;
	if (!own_descriptor(f))
		reopen(f);
	if (f->fd < 0)
		return false;
	if (sealable(f->fd))
		return true;
	file_close(f);
	return false;
}

void file_close(struct mapped_file *f)
{
	if (f->opened)
		close(f->fd);
}
