/*
 * The mappings of this process. From Linux 6.11 on the kernel finds one by address; before, the lines of
 * /proc/self/maps are read. Lines are read into struct maps, not into memory of malloc: remap.c looks mappings up
 * while it copies pages, and these may be malloc's.
 */
#include "lib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* As linux/fs.h has it from Linux 6.11 on: older headers do not declare it. size, flags and addr are the question.
 * Name and build ID are not asked for. */
struct procmap_query {
	uint64_t size, flags, addr;
	uint64_t start, end, vma_flags, page_size, offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name, build_id;
};

#define QUERY _IOWR('f', 17, struct procmap_query)

/* Bits of vma_flags, and one of flags (PROCMAP_QUERY_COVERING_OR_NEXT_VMA). */
enum { READABLE = 1, WRITABLE = 2, EXECUTABLE = 4, SHARED = 8, COVERING_OR_NEXT = 16 };

/* query reports by errno whether addr is in a mapping, or before one. */
static int query(const struct maps *m, uintptr_t addr, struct mapping *found)
{
	struct procmap_query q = {.size = sizeof(q), .flags = COVERING_OR_NEXT, .addr = addr};

	if (ioctl(m->fd, QUERY, &q) < 0)
		return errno;
	*found = (struct mapping){q.start, q.end, q.vma_flags & READABLE, q.vma_flags & WRITABLE,
		q.vma_flags & EXECUTABLE, q.vma_flags & SHARED, q.offset, makedev(q.dev_major, q.dev_minor), q.inode};
	return 0;
}

/* maps_open reports whether mappings can be looked up. /proc/self would be empty once the first thread has ended. */
bool maps_open(struct maps *m)
{
	struct mapping any;
	int err;

	m->at = m->have = 0;
	fds_begin();
	m->fd = fds_add(open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
	fds_end();
	if (m->fd < 0)
		return false;
	err = query(m, 0, &any);
	m->text = err && err != ENOENT;
	return true;
}

/* maps_close closes the file, of which no child may have a descriptor: it would show the mappings of its parent. */
void maps_close(struct maps *m) { fds_close(m->fd); }

/* parse reads a line, which ends with 0: START-END rwxs OFFSET MAJOR:MINOR INODE NAME. */
static bool parse(const char *line, struct mapping *to)
{
	unsigned long start, end;
	unsigned long long offset, ino;
	unsigned int dev_major, dev_minor;
	char r, w, x, s;

	if (sscanf(line, "%lx-%lx %c%c%c%c %llx %x:%x %llu", &start, &end, &r, &w, &x, &s, &offset, &dev_major,
			&dev_minor, &ino) != 10)
		return false;
	*to = (struct mapping){start, end, r == 'r', w == 'w', x == 'x', s == 's', offset, makedev(dev_major, dev_minor), ino};
	return true;
}

/* fill reads more behind the line that has begun. It returns false at the end of the file, after an error, and if a
 * line is longer than there is room for: each line feed in the name of a file takes four characters. */
static bool fill(struct maps *m)
{
	ssize_t n;

	memmove(m->lines, m->lines + m->at, m->have - m->at);
	m->have -= m->at;
	m->at = 0;
	do
		n = read(m->fd, m->lines + m->have, sizeof(m->lines) - m->have);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	m->have += (size_t)n;
	return true;
}

/* next_line reads on to the line of the first mapping that ends behind addr. That line stays the next one. */
static bool next_line(struct maps *m, uintptr_t addr, struct mapping *found)
{
	for (;;) {
		char *line = m->lines + m->at, *end = memchr(line, '\n', m->have - m->at), *dash;

		if (!end) {
			if (!fill(m))
				return false;
			continue;
		}
		*end = 0;
		dash = strchr(line, '-');
		if (!dash)
			return false;
		if (strtoul(dash + 1, NULL, 16) > addr) {
			bool ok = parse(line, found);
			*end = '\n';
			return ok;
		}
		m->at = (size_t)(end + 1 - m->lines);
	}
}

/* maps_next finds the mapping that addr is in, or the first one behind it. Addresses must ascend from call to call. */
bool maps_next(struct maps *m, uintptr_t addr, struct mapping *found)
{
	return m->text ? next_line(m, addr, found) : !query(m, addr, found);
}

/* maps_find finds the mapping that addr is in. */
bool maps_find(struct maps *m, uintptr_t addr, struct mapping *found)
{
	return maps_next(m, addr, found) && found->start <= addr;
}
