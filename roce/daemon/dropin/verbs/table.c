/* Objects by handle. The daemon never uses a handle again, so they are no indices of an array. */
#include "lib.h"

#include <stdlib.h>

static struct entry **bucket(struct table *t, uint32_t handle)
{
	return &t->slots[handle % (sizeof(t->slots) / sizeof(*t->slots))];
}

int table_add(struct table *t, uint32_t handle, enum kind kind, void *object, uint32_t *taken)
{
	struct entry *e = malloc(sizeof(*e)), **b = bucket(t, handle);

	if (!e)
		return ENOMEM;
	pthread_mutex_lock(&t->lock);
	*e = (struct entry){*b, handle, kind, taken, object};
	*b = e;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

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

/* table_any reports whether f does so for an object. The lock is held meanwhile. */
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

/* table_clear forgets the objects that the program has left open. */
void table_clear(struct table *t)
{
	for (size_t i = 0; i < sizeof(t->slots) / sizeof(*t->slots); i++) {
		for (struct entry *e; (e = t->slots[i]); free(e))
			t->slots[i] = e->next;
	}
	pthread_mutex_destroy(&t->lock);
}
