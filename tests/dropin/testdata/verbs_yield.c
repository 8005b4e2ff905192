/* A thread that polls yields, and sleeps where yields take long. Time stands still but for yields and sleeps. */
#define sched_yield test_yield
#define nanosleep test_sleep
#define clock_gettime test_clock
#include "yield.c"

#include <stdio.h>
#include <stdlib.h>

static int64_t now = 1000000000, takes; /* the time, and how long a yield takes */
static int yields, sleeps;

int test_yield(void)
{
	now += takes;
	yields++;
	return 0;
}

int test_sleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	now += t->tv_nsec;
	sleeps++;
	return 0;
}

int test_clock(clockid_t id, struct timespec *t)
{
	(void)id;
	*t = (struct timespec){ now / 1000000000, now % 1000000000 };
	return 0;
}

/* did ends the program unless there were so many yields and sleeps since the last call. */
static void did(const char *when, int want_yields, int want_sleeps)
{
	if (yields != want_yields || sleeps != want_sleeps) {
		printf("%s: %d yields, %d sleeps, want %d, %d\n", when, yields, sleeps, want_yields, want_sleeps);
		exit(1);
	}
	yields = sleeps = 0;
}

static void polls(const void *cq, int n)
{
	while (n-- > 0)
		give_way(cq, false);
}

int main(void)
{
	const char a = 0, b = 0;

	polls(&a, YIELD_AFTER);
	did("before it waits", 0, 0);
	polls(&a, 5);
	did("nobody else computes", 5, 0);
	takes = long_yield;
	polls(&a, 1);
	did("somebody computes", 1, 0);
	polls(&a, 3);
	did("it rests", 0, 3);
	polls(&b, 3);
	did("at another queue", 0, 0);
	polls(&a, 1);
	did("at the same queue again", 0, 1);
	give_way(&a, true);
	polls(&a, YIELD_AFTER);
	did("after a completion", 0, 0);
	now += least_rest;
	takes = 0;
	polls(&a, 2);
	did("the rest is over", 2, 0);
	return 0;
}
