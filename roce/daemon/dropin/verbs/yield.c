/*
 * Giving way: the program that polls and the daemon may share a processor, so a thread that finds nothing yields it
 * between polls. sched_yield gives up the thread's claim: if other programs compute there, they get the processor
 * for milliseconds. Then it is better to be preempted as usual, and the thread does not yield for a while, which is
 * longer each time.
 */
#include "lib.h"

#include <sched.h>
#include <time.h>

enum { YIELD_AFTER = 10 }; /* polls that find nothing, one after another */

/* In nanoseconds. */
static const int64_t long_yield = 200000, least_rest = 1000000, most_rest = 64000000, rests_back = 16;

struct yielder {
	unsigned int empty;
	int64_t next, rest; /* when to yield again; the latest rest */
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

/* give_way is called after each poll. */
void give_way(bool found)
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
	if (began < y->next)
		return;
	sched_yield();
	took(y, began, clock_now());
}
