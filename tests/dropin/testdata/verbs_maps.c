/* Both ways to find a mapping, by the kernel and by the lines of /proc/self/maps, find the same. */
#include "fds.c"
#include "maps.c"

#include <sys/mman.h>

#include "must.h"

enum { PAGE = 4096, FILES = 300 };

static void opened(struct maps *m, bool text)
{
	MUST(maps_open(m));
	if (text)
		m->text = true;
}

/* check looks for all mappings from an address on, and says how many there are. */
static int check(uintptr_t from, uintptr_t to)
{
	struct maps kernel, lines;
	int n = 0;

	opened(&kernel, false);
	opened(&lines, true);
	for (uintptr_t at = from; at < to; at += PAGE) {
		struct mapping a = {0}, b = {0};
		bool there = maps_find(&kernel, at + 1, &a);

		MUST(maps_find(&lines, at + 1, &b) == there);
		if (!there)
			continue;
		MUST(a.start == b.start && a.end == b.end && a.readable == b.readable && a.writable == b.writable &&
				a.executable == b.executable && a.shared == b.shared && a.offset == b.offset &&
				a.dev == b.dev && a.ino == b.ino);
		MUST(a.start <= at && at < a.end);
		n += a.start == at;
	}
	maps_close(&kernel);
	maps_close(&lines);
	return n;
}

int main(void)
{
	static const char *names[] = {"x", "with space", "line\nfeed", " (deleted)", "0-ffffffffffffffff rw-s",
		"a name that is as long as one can be, which makes lines of many lengths: 0123456789012345678901234567"};
	const int kinds[] = {MAP_SHARED, MAP_PRIVATE};
	const int rights[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
	char *base = mmap(NULL, 4 * FILES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mapping found;
	struct maps m;

	MUST(base != MAP_FAILED);
	MUST(!munmap(base, 4 * FILES * PAGE));
	for (int i = 0; i < FILES; i++) { /* two pages each, and a hole of two behind them */
		int fd = memfd_create(names[i % 6], 0);
		MUST(fd >= 0 && !ftruncate(fd, 8 * PAGE));
		MUST(mmap(base + 4 * i * PAGE, 2 * PAGE, rights[i % 3], kinds[i % 2] | MAP_FIXED, fd, i % 5 * PAGE) ==
				base + 4 * i * PAGE);
		close(fd);
	}
	MUST(check((uintptr_t)base, (uintptr_t)base + 4 * FILES * PAGE) == FILES);
	opened(&m, true);
	MUST(!maps_find(&m, UINTPTR_MAX - 1, &found));
	maps_close(&m);
	return 0;
}
