/*
 * What a process knows of its IDs, for the time when the daemon has ended: which of them were bound to a device, for
 * RDMA_CM_EVENT_DEVICE_REMOVAL, and how many events each has had, for which rdma_destroy_id waits.
 *
 * As long as the daemon is there it alone counts: this is not asked. An ID is added when it is created, or when the
 * request that it is for is delivered, and taken out when it is destroyed. IDs that a program leaves to the end of
 * their channel stay in the table: nobody can ask for them any more.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "cm.h"

struct cm_id_entry {
	struct cm_id_entry *next;
	struct cm_id id;
};

enum { SLOTS = sizeof(((struct cm_ids *)0)->slots) / sizeof(struct cm_id_entry *) };

/* place returns where the pointer to an ID's entry is, or would be. */
static struct cm_id_entry **place(struct cm_ids *t, uint32_t handle)
{
	struct cm_id_entry **p = &t->slots[handle % SLOTS];

	while (*p && (*p)->id.handle != handle)
		p = &(*p)->next;
	return p;
}

/* cm_ids_add adds an ID, whose handle the daemon has not used before on this connection. ENOMEM if there is no
 * memory. */
int cm_ids_add(struct cm_ids *t, struct cm_id id)
{
	struct cm_id_entry *e = malloc(sizeof(*e));

	if (!e)
		return ENOMEM;
	pthread_mutex_lock(&t->lock);
	*e = (struct cm_id_entry){ .next = t->slots[id.handle % SLOTS], .id = id };
	t->slots[id.handle % SLOTS] = e;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

bool cm_ids_take(struct cm_ids *t, uint32_t handle, struct cm_id *taken)
{
	struct cm_id_entry **p, *e;

	pthread_mutex_lock(&t->lock);
	p = place(t, handle);
	e = *p;
	if (e) {
		*p = e->next;
		*taken = e->id;
	}
	pthread_mutex_unlock(&t->lock);
	free(e);
	return e != NULL;
}

/* cm_ids_change calls change with the lock held. An ID that is not known is none of this process's, or could not be
 * noted. */
void cm_ids_change(struct cm_ids *t, uint32_t handle, void (*change)(struct cm_id *id, uint64_t value), uint64_t value)
{
	struct cm_id_entry *e;

	pthread_mutex_lock(&t->lock);
	e = *place(t, handle);
	if (e)
		change(&e->id, value);
	pthread_mutex_unlock(&t->lock);
}

void cm_id_placed(struct cm_id *id, uint64_t unused)
{
	(void)unused;
	id->placed = true;
}

void cm_id_named(struct cm_id *id, uint64_t cookie)
{
	id->cookie = cookie;
}

void cm_id_moved(struct cm_id *id, uint64_t channel)
{
	id->channel = (uint32_t)channel;
}

void cm_id_counted(struct cm_id *id, uint64_t events)
{
	id->events += (uint32_t)events;
}

/* told_next returns a bound ID of a channel that has not heard of the end; NULL if there is none. One without a
 * cookie is that of a request which the program has not accepted: the kernel drops its events, too. */
static struct cm_id *told_next(struct cm_ids *t, uint32_t channel)
{
	for (size_t i = 0; i < SLOTS; i++) {
		for (struct cm_id_entry *e = t->slots[i]; e; e = e->next) {
			if (e->id.channel == channel && e->id.placed && e->id.cookie)
				return &e->id;
		}
	}
	return NULL;
}

/* cm_ids_removed counts the event as taken, as the daemon would, and in one step with finding it: no two threads tell
 * of one ID. */
bool cm_ids_removed(struct cm_ids *t, uint32_t channel, struct cm_id *told)
{
	struct cm_id *id;

	pthread_mutex_lock(&t->lock);
	id = told_next(t, channel);
	if (id) {
		id->placed = false;
		id->events++;
		*told = *id;
	}
	pthread_mutex_unlock(&t->lock);
	return id != NULL;
}
