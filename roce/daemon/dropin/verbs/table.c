/*
 * Objects by handle: CQs, QPs and SRQs, of which events may come. An event names a handle, and whoever takes it looks
 * the object up and counts the event under the table's lock. So after table_remove no thread can take an event of the
 * object, and the count of those that were taken is final. The daemon never uses a handle again, so they are no
 * indices of an array: a program that opens and closes objects for days has handles far above the number of those
 * that are open.
 */
#include "lib.h"

#include <stdlib.h>

static struct entry **bucket(struct table *t, uint32_t handle)
{
	return &t->slots[handle % (sizeof(t->slots) / sizeof(*t->slots))];
}

/*
 * table_add makes events find an object. The connection ends if the daemon has given the handle to another object: its
 * end would take the entry of the other away, and an event would find freed memory.
 */
int table_add(struct ibv_context *v, uint32_t handle, enum kind kind, void *object, uint32_t *taken)
{
	struct table *t = &context_of(v)->objects;
	struct entry *e = malloc(sizeof(*e)), **b = bucket(t, handle);
	bool twice;

	if (!e)
		return ENOMEM;
	pthread_mutex_lock(&t->lock);
	twice = table_find(t, handle);
	if (!twice) {
		*e = (struct entry){*b, handle, kind, taken, object};
		*b = e;
	}
	pthread_mutex_unlock(&t->lock);
	if (!twice)
		return 0;
	free(e);
	debug("the daemon has given handle %u twice", handle);
	control_break(&context_of(v)->control);
	return EIO;
}

/* table_remove makes events of an object stale. It is called once the daemon has closed the object, and before it is
 * freed. */
void table_remove(struct table *t, uint32_t handle)
{
	pthread_mutex_lock(&t->lock);
	for (struct entry **p = bucket(t, handle), *e; (e = *p); p = &e->next) {
		if (e->handle == handle) {
			*p = e->next;
			free(e);
			break;
		}
	}
	pthread_mutex_unlock(&t->lock);
}

struct entry *table_find(struct table *t, uint32_t handle)
{
	struct entry *e = *bucket(t, handle);

	while (e && e->handle != handle)
		e = e->next;
	return e;
}

/* table_any reports whether f does so for an object, and stops there. The lock is held meanwhile, so that no object
 * is freed under f, which must not call the table itself, nor take the lock of a ring. */
bool table_any(struct table *t, bool (*f)(void *arg, const struct entry *e), void *arg)
{
	bool any = false;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; !any && i < sizeof(t->slots) / sizeof(*t->slots); i++) {
		for (struct entry *e = t->slots[i]; e && !any; e = e->next)
			any = f(arg, e);
	}
	pthread_mutex_unlock(&t->lock);
	return any;
}

/* table_clear forgets the objects that the program has left open. No thread takes events any more
 * (ibv_close_device). */
void table_clear(struct table *t)
{
	for (size_t i = 0; i < sizeof(t->slots) / sizeof(*t->slots); i++) {
		for (struct entry *e; (e = t->slots[i]); free(e))
			t->slots[i] = e->next;
	}
	pthread_mutex_destroy(&t->lock);
}
