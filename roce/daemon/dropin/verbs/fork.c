/*
 * fork. A child has no verbs of its parent: its contexts refuse all with ENODEV. Its copies of the descriptors are
 * closed (fds.c), so that the daemon sees the end of the parent, too; its rings were never mapped (MADV_DONTFORK).
 */
#include "lib.h"

enum { FORK_UNNEEDED = 2 }; /* of ibv_fork_status */

static void before(void) { pthread_mutex_lock(&contexts_lock); }

static void after(void) { pthread_mutex_unlock(&contexts_lock); }

static void in_child(void)
{
	for (struct context *c = contexts; c; c = c->next) {
		atomic_store(&c->control.gone, ENODEV);
		c->control.fd = c->events.fd = -1;
		c->doorbells.shards = 0;
		for (struct channel *h = c->channels; h; h = h->next)
			h->box.fd = -1;
	}
	pthread_mutex_unlock(&contexts_lock);
}

static void register_handlers(void) { pthread_atfork(before, after, in_child); }

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
