/*
 * Memory regions by L_Key. Posts look regions up without a lock: each QP keeps copies of those that it has used last,
 * which hold until the table changes. So nothing here is touched by a post after its region is gone.
 *
 * The generation says whether a copy still holds: each change of the table adds one, under the lock, and a look-up
 * notes it under the same lock. A post compares its copy's with the table's, which takes one load (short.c). A region
 * that is deregistered while a request posts from it is the program's fault, as with any device.
 *
 * The table is that of a context and of the process that has made it: a forked child begins with an empty one
 * (context_inherit), as the daemon may give the child the same keys again.
 */
#include "lib.h"

void regions_init(struct regions *t)
{
	pthread_mutex_init(&t->lock, NULL);
	atomic_init(&t->generation, 1);
}

/* bucket returns the list of a key's regions. The lower 8 bits of a key are not used: they vary while the upper 24
 * name the place in the daemon's table. */
static struct mr **bucket(struct regions *t, uint32_t lkey)
{
	return &t->slots[(lkey >> 8) % (sizeof(t->slots) / sizeof(*t->slots))];
}

/* changed makes all copies invalid, of all QPs and all regions: registering is rare, posting is not. The lock is
 * held. */
static void changed(struct regions *t) { atomic_fetch_add_explicit(&t->generation, 1, memory_order_release); }

/* link_in puts a region in front of others, so that look-ups find the newest of a key. */
static void link_in(struct regions *t, struct mr *m)
{
	struct mr **b = bucket(t, m->v.lkey);

	m->next = *b;
	*b = m;
	changed(t);
}

/* unlink_from takes a region out. It need not be there: in a forked child it is the parent's, and in no table. */
static void unlink_from(struct regions *t, struct mr *m)
{
	for (struct mr **p = bucket(t, m->v.lkey); *p; p = &(*p)->next) {
		if (*p == m) {
			*p = m->next;
			break;
		}
	}
	changed(t);
}

void regions_add(struct regions *t, struct mr *m)
{
	pthread_mutex_lock(&t->lock);
	link_in(t, m);
	pthread_mutex_unlock(&t->lock);
}

void regions_remove(struct regions *t, struct mr *m)
{
	pthread_mutex_lock(&t->lock);
	unlink_from(t, m);
	pthread_mutex_unlock(&t->lock);
}

/* regions_change makes m what to is, in one step for look-ups: re-registered memory may have another key. */
void regions_change(struct regions *t, struct mr *m, const struct mr *to)
{
	pthread_mutex_lock(&t->lock);
	unlink_from(t, m);
	*m = *to;
	link_in(t, m);
	pthread_mutex_unlock(&t->lock);
}

/* regions_look_up finds the newest region of a key: an old one may be closed at the daemon, and still be here.
 * Without a region, or with one from which no payload may be copied, the copy has length 0: that is noted as well, so
 * that a QP does not take the lock for each post from such memory. */
void regions_look_up(struct regions *t, uint32_t lkey, struct region *found)
{
	struct mr *m;

	pthread_mutex_lock(&t->lock);
	*found = (struct region){.generation = atomic_load(&t->generation), .lkey = lkey};
	for (m = *bucket(t, lkey); m && m->v.lkey != lkey; m = m->next)
		;
	if (m && m->own) {
		found->pd = m->pd;
		found->iova = m->iova;
		found->length = m->v.length;
		found->addr = m->v.addr;
	}
	pthread_mutex_unlock(&t->lock);
}

/* regions_copy copies the newest region of a key, for who looks at more than posts do (ibv_advise_mr). It returns
 * false if there is none. */
bool regions_copy(struct regions *t, uint32_t lkey, struct mr *to)
{
	struct mr *m;

	pthread_mutex_lock(&t->lock);
	for (m = *bucket(t, lkey); m && m->v.lkey != lkey; m = m->next)
		;
	if (m)
		*to = *m;
	pthread_mutex_unlock(&t->lock);
	return m;
}

/* regions_clear gives back the memory of regions that the program has left open, when its context is closed. The
 * structs stay in memory, as other objects do that a closed context has (ibv_close_device). */
void regions_clear(struct regions *t)
{
	for (size_t i = 0; i < sizeof(t->slots) / sizeof(*t->slots); i++) {
		for (struct mr *m = t->slots[i]; m; m = m->next) {
			remap_end(m->moved);
			m->moved = NULL;
		}
	}
	pthread_mutex_destroy(&t->lock);
}

/* overlaps_one reports whether a table has a region of such memory. */
static bool overlaps_one(struct regions *t, uintptr_t from, uintptr_t to)
{
	struct mr *m = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < sizeof(t->slots) / sizeof(*t->slots) && !m; i++) {
		m = t->slots[i];
		while (m && (m->share || (uintptr_t)m->v.addr >= to || (uintptr_t)m->v.addr + m->v.length <= from))
			m = m->next;
	}
	pthread_mutex_unlock(&t->lock);
	return m;
}

/* regions_overlap reports whether the daemon reads and writes memory of [from, to) by system calls, for a region of any
 * context. */
bool regions_overlap(uintptr_t from, uintptr_t to)
{
	bool found = false;

	pthread_mutex_lock(&contexts_lock);
	for (struct context *c = contexts; c && !found; c = c->next)
		found = overlaps_one(&c->regions, from, to);
	pthread_mutex_unlock(&contexts_lock);
	return found;
}
