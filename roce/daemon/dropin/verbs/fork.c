/*
 * fork. A child has no objects of its parent: they refuse all with ENODEV, and to destroy one frees the child's memory.
 * Its copies of the descriptors are closed (fds.c), so that the daemon sees the end of the parent, too; its rings were
 * never mapped (MADV_DONTFORK). A context that it has inherited connects to the daemon when it is used (ready).
 */
#include "lib.h"

#include <fcntl.h>
#include <sys/timerfd.h>
#include <unistd.h>

uint32_t forks;

enum { FORK_UNNEEDED = 2 }; /* of ibv_fork_status */

/* before notes whether the program wants to wait for asynchronous events. */
static void before(void)
{
	pthread_mutex_lock(&contexts_lock);
	for (struct context *c = contexts; c; c = c->next)
		c->async_flags = fcntl(c->v.context.async_fd, F_GETFL);
}

/* hold takes the number of the parent's descriptor of asynchronous events, which fds.c has closed, before the program
 * gets it for another. A timer that is not set is never readable. */
static bool hold(int number, int flags)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	bool held = fd == number;

	if (fd < 0)
		return false;
	if (!held) {
		held = dup3(fd, number, O_CLOEXEC) >= 0;
		close(fd);
	}
	if (held && flags >= 0)
		fcntl(number, F_SETFL, flags);
	return held;
}

/*
 * context_inherit makes a context one without a connection. Locks are made anew, since another thread of the parent may
 * have had them. Tables forget what is the parent's: a handle or a key may come again on the child's connection. Their
 * entries are left: that thread may have been changing them.
 */
void context_inherit(struct context *c)
{
	uint64_t generation = atomic_load(&c->regions.generation);

	c->control = (struct control){.fd = -1, .gone = ENODEV};
	pthread_mutex_init(&c->control.lock, NULL);
	c->events = (struct mailbox){.fd = -1};
	pthread_mutex_init(&c->events.lock, NULL);
	pthread_cond_init(&c->events.left, NULL);
	c->doorbells = (struct doorbells){0};
	memset(&c->objects, 0, sizeof(c->objects));
	pthread_mutex_init(&c->objects.lock, NULL);
	memset(&c->regions, 0, sizeof(c->regions));
	regions_init(&c->regions);
	atomic_store(&c->regions.generation, generation + 1);
	c->shares.first = NULL;
	shares_init(&c->shares);
	pthread_mutex_init(&c->v.context.mutex, NULL);
	c->fatal_told = false;
}

static void after(void) { pthread_mutex_unlock(&contexts_lock); }

/* in_child counts the fork first: by that all objects which the child has are inherited. It has one thread, and has the
 * lock that before has taken. */
static void in_child(void)
{
	forks++;
	atomic_store(&watchers, 0);
	for (struct context *c = contexts; c; c = c->next) {
		context_inherit(c);
		c->holds = hold(c->v.context.async_fd, c->async_flags);
	}
	pthread_mutex_unlock(&contexts_lock);
}

static void register_handlers(void)
{
	fds_watch(); /* before, as connections are made with the lock held, and hold takes a number that fds.c has closed */
	pthread_atfork(before, after, in_child);
}

/* fork_watch registers the handlers, before there can be a context. */
void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_handlers);
}

/* The daemon copies what is at an address when it gets there, and pins nothing. So nothing has to be done
 * for registered memory, unless it was moved (remap.c). */
EXPORT int ibv_fork_init(void) { return 0; }

EXPORT int ibv_is_fork_initialized(void) { return FORK_UNNEEDED; }

EXPORT int ibv_dontfork_range(void *base __attribute__((unused)), size_t size __attribute__((unused))) { return 0; }

EXPORT int ibv_dofork_range(void *base __attribute__((unused)), size_t size __attribute__((unused))) { return 0; }
