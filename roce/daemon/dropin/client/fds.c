/*
 * Descriptors that no child may have. By a control socket it could read what the daemon answers its parent, by a file
 * of /proc its parent's memory or mappings, by a memfd or a socket from a reply what its parent sends and receives.
 * All are close-on-exec, and they are kept here: a fork waits while one is made, and its child closes all of them. A
 * child of vfork, clone or _Fork, of which no handler hears, has them until it executes another program.
 *
 * The lock is the last that a thread takes: nothing that waits, or that takes another lock of the library, may stand
 * between fds_begin and fds_end.
 */
#include "client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BITS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *kept; /* a bit for each descriptor */
static size_t words;
static int cancel; /* the state of the thread that has the lock, before */

static void before(void) { pthread_mutex_lock(&lock); }

static void after(void) { pthread_mutex_unlock(&lock); }

/* in_child closes all. It allocates nothing, and the lock is its own: it was taken before the fork, by this thread. */
static void in_child(void)
{
	for (size_t i = 0; i < words; i++) {
		for (; kept[i]; kept[i] &= kept[i] - 1)
			close((int)(i * BITS) + __builtin_ctzll(kept[i]));
	}
	pthread_mutex_unlock(&lock);
}

static void register_handlers(void) { pthread_atfork(before, after, in_child); }

/* fds_watch registers the handlers of forks. Whoever holds a lock that forks take, and calls fds_begin, registers the
 * handlers for that lock later: then a fork takes it first, too. */
void fds_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_handlers);
}

/* fds_begin keeps forks waiting until fds_end, and the thread from being cancelled: for calls that make descriptors
 * and do not wait. */
void fds_begin(void)
{
	int state;

	fds_watch();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&lock);
	cancel = state;
}

/* fds_end reads the thread's state before it unlocks: then the next thread writes its own there. */
void fds_end(void)
{
	int state = cancel;

	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(state, NULL);
}

/* grow makes room for so many words. The lock is held. It makes more room than is needed, as descriptors have ever
 * higher numbers in a program that opens many. */
static bool grow(size_t to)
{
	uint64_t *more;

	if (to <= words)
		return true;
	to += to / 2;
	more = realloc(kept, to * sizeof(*more));
	if (!more)
		return false;
	memset(more + words, 0, (to - words) * sizeof(*more));
	kept = more;
	words = to;
	return true;
}

/* fds_add keeps a descriptor that was made since fds_begin, and returns it; -1 if there is none, or no memory. */
int fds_add(int fd)
{
	if (fd < 0)
		return -1;
	if (!grow((size_t)fd / BITS + 1)) {
		close(fd);
		errno = ENOMEM;
		return -1;
	}
	kept[fd / BITS] |= 1ull << fd % BITS;
	return fd;
}

static void drop(int fd) { kept[fd / BITS] &= ~(1ull << fd % BITS); }

/* fds_give leaves a descriptor to the program, which may hand it on to children. Who closes it does so by close. */
void fds_give(int fd)
{
	fds_begin();
	drop(fd);
	fds_end();
}

/* fds_move gives a descriptor that was added another number, whatever that was before. dup3 does so in one step, so
 * no other thread gets the number in between. */
int fds_move(int from, int to)
{
	int err = 0;

	fds_begin();
	if (dup3(from, to, O_CLOEXEC) < 0) {
		err = errno;
	} else {
		drop(from);
		close(from);
		if (fds_add(to) < 0)
			err = ENOMEM;
	}
	fds_end();
	return err;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* fds_follow keeps the number that the program has given to a descriptor which was added. The number before may be of
 * another file of the program's by now: that is no longer kept. */
void fds_follow(int from, int to)
{
	fds_begin();
	if (!same_file(from, to))
		drop(from);
	if (fcntl(to, F_GETFD) >= 0 && grow((size_t)to / BITS + 1))
		kept[to / BITS] |= 1ull << to % BITS;
	fds_end();
}

/* fds_close closes a descriptor that was added, if it is one. Both steps are under the lock: a descriptor that
 * another thread opens may have the same number as soon as this one is closed, and its bit must not be cleared. */
void fds_close(int fd)
{
	if (fd < 0)
		return;
	fds_begin();
	drop(fd);
	close(fd);
	fds_end();
}

/* close_all is fds_close for several. */
void close_all(int *fds, int n)
{
	for (int i = 0; i < n; i++)
		fds_close(fds[i]);
}
