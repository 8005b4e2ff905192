/*
 * madvise, of which libibverbs must know where it has moved private memory to a file (../verbs/remap.c):
 *
 * - Private pages that are discarded are zero, those of a file keep what they have: libibverbs clears them.
 * - MADV_FREE is refused for files, and leaves it to the kernel when private pages become zero, if at all.
 * - What marks pages for forks and dumps would be lost by a move. After the first such call libibverbs moves none.
 *
 * The C library's own calls do not come here. It does not count on zeros, and marks only stacks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

/* discards clears those of a range's pages that are in files of libibverbs, and reports whether there are any. With
 * clear false it only looks. */
typedef bool discards(void *at, size_t len, bool clear);

static _Atomic(discards *) watcher;
static atomic_bool marked;

/* goroce_memory_watch makes f the function to call. It reports whether no page was marked so far. */
EXPORT bool goroce_memory_watch(discards *f);

EXPORT bool goroce_memory_watch(discards *f)
{
	atomic_store(&watcher, f);
	return !atomic_load(&marked);
}

EXPORT int madvise(void *at, size_t len, int advice)
{
	int r = (int)syscall(SYS_madvise, at, len, advice), saved = errno;
	discards *f = atomic_load(&watcher);

	switch (advice) {
	case MADV_DONTFORK:
	case MADV_DONTDUMP:
	case MADV_WIPEONFORK:
		atomic_store(&marked, true);
		break;
	case MADV_DONTNEED:
		if (!r && f)
			f(at, len, true);
		break;
	case MADV_FREE:
		if (r < 0 && saved == EINVAL && f && f(at, len, false))
			r = 0;
	}
	errno = saved;
	return r;
}
