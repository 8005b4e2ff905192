/*
 * Giving way: the program that polls and the daemon may share a processor, so a thread that finds nothing yields it
 * between polls. A yield that takes long says that others compute there. Then the thread sleeps between polls for a
 * while, which is longer each time: what it would spend on polling is what the daemon lacks, and a thread that is woken
 * runs soon, where one that yields waits for the time slices of others, which are milliseconds.
 *
 * A thread that polls many queues in turn sleeps at one of them.
 */
#include "lib.h"

#include <sched.h>
#include <time.h>

enum { YIELD_AFTER = 10 }; /* polls that find nothing, one after another */

/* In nanoseconds. */
static const int64_t long_yield = 200000, nap = 100000, least_rest = 1000000, most_rest = 64000000, rests_back = 16;

struct yielder {
	unsigned int empty;
	int64_t next, rest;   /* when to yield again; the latest rest */
	const void *slept_at; /* the queue of the latest sleep, */
	int64_t woken;        /* and its end */
};

static _Thread_local struct yielder yielder;

static int64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* took sets the rest after a yield, if that was long. */
static void took(struct yielder *y, int64_t began, int64_t ended)
{
	if (ended - began < long_yield)
		return;
	if (began - y->next > rests_back * y->rest)
		y->rest = 0;
	y->rest = 2 * y->rest < most_rest ? 2 * y->rest : most_rest;
	if (y->rest < least_rest)
		y->rest = least_rest;
	y->next = ended + y->rest;
}

/* sleep_at sleeps, unless the thread has slept at another queue lately. */
static void sleep_at(struct yielder *y, const void *cq, int64_t now)
{
	const struct timespec t = { .tv_nsec = nap };

	if (y->slept_at != cq && now - y->woken < least_rest)
		return;
	nanosleep(&t, NULL);
	y->slept_at = cq;
	y->woken = clock_now();
}

/* give_way is called after each poll of a queue. */
void give_way(const void *cq, bool found)
{
	struct yielder *y = &yielder;
	int64_t began;

	if (found) {
		y->empty = 0;
		return;
	}
	if (++y->empty <= YIELD_AFTER)
		return;
	began = clock_now();
	if (began < y->next) {
		sleep_at(y, cq, began);
		return;
	}
	sched_yield();
	took(y, began, clock_now());
}
