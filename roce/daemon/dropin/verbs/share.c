/*
 * Files of the program that the daemon maps, of one context. The daemon maps a file once, and then nobody can map it
 * for writing any more (docs/abi.md, "Shared memory"). So a file stays shared when its last region has ended, as the
 * program may register it again, until the program has unmapped it. That is looked up when memory is registered or
 * deregistered.
 *
 * A file is known by device and inode, which name it as long as it exists; the daemon's mapping keeps it in
 * existence. The lock is held over requests to the daemon, so that two threads do not share one file twice. No
 * handler of fork takes it: a child gets a list and a lock of its own (context_inherit).
 */
#include "lib.h"

#include <stdlib.h>
#include <unistd.h>

/* How many files may stay shared without a region. Each one is a mapping of the daemon's, and counts against its
 * limits. */
enum { MOST_UNUSED = 64 };

void shares_init(struct shares *l) { pthread_mutex_init(&l->lock, NULL); }

/* in_use reports whether a file is mapped where it was registered last. Other places are not looked for: a file that is
 * mapped elsewhere and registered again is memory of the process then. If nothing can be looked up, it stays shared. */
static bool in_use(const struct share *s)
{
	struct mapping m;
	struct maps maps;
	bool found;

	if (!maps_open(&maps))
		return true;
	found = maps_find(&maps, s->at, &m) && m.dev == s->dev && m.ino == s->ino;
	maps_close(&maps);
	return found;
}

/* sweep ends what has no region and is not mapped any more, and what is too many. The newest files are first in the
 * list, so those that go are the oldest. The lock is held. */
static void sweep(struct ibv_context *v)
{
	struct share **p = &context_of(v)->shares.first, *s;
	int unused = 0;

	while ((s = *p)) {
		if (s->regions || (unused++ < MOST_UNUSED && in_use(s))) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		close_handle(v, GOROCE_KIND_SHARED_MEMORY, s->handle, NULL);
		free(s);
	}
}

/* share_file has the daemon map a file. Another thread may close the descriptor meanwhile, and open another file: what
 * was shared then is undone. */
static int share_file(struct ibv_context *v, const struct mapped_file *f, struct share *s)
{
	struct goroce_object r;
	struct call call = {.op = GOROCE_SHARE_MEMORY, .give = f->fd, .reply = &r, .size = sizeof(r)};
	int err = context_call(v, &call);

	if (err)
		return err;
	s->handle = r.handle;
	s->dev = f->map.dev;
	s->ino = f->map.ino;
	if (file_same(f))
		return 0;
	close_handle(v, GOROCE_KIND_SHARED_MEMORY, r.handle, NULL);
	return EBADF;
}

/* make shares the file that memory is mapped from. ENOENT: there is no descriptor by which the daemon could map it.
 * Whatever the error, the caller registers the memory as that of the process. */
static int make(struct ibv_context *v, struct mapped_file *f, struct share **made)
{
	struct share *s;
	int err;

	if (!file_open(f))
		return ENOENT;
	s = calloc(1, sizeof(*s));
	err = s ? share_file(v, f, s) : ENOMEM;
	file_close(f);
	if (err) {
		free(s);
		return err;
	}
	*made = s;
	return 0;
}

/* shares_take finds the file of memory among those that the daemon maps, or has it mapped, for one region more. The
 * caller is not cancelled. */
int shares_take(struct ibv_context *v, struct mapped_file *f, uintptr_t at, struct share **taken)
{
	struct shares *l = &context_of(v)->shares;
	struct share *s;
	int err = 0;

	pthread_mutex_lock(&l->lock);
	for (s = l->first; s && (s->dev != f->map.dev || s->ino != f->map.ino); s = s->next)
		;
	if (!s) {
		sweep(v);
		err = make(v, f, &s);
		if (!err) {
			s->next = l->first;
			l->first = s;
		}
	}
	if (!err) {
		s->regions++;
		s->at = at;
		*taken = s;
	}
	pthread_mutex_unlock(&l->lock);
	return err;
}

/* shares_give ends the use of a file by a region. s is NULL for a region of another kind. A parent's file is in no
 * list of a child: its last region frees it. There its count has no lock, as the child's own regions are never of
 * that file. */
void shares_give(struct ibv_context *v, uint32_t born, struct share *s)
{
	struct shares *l = &context_of(v)->shares;
	int cancel;

	if (!s)
		return;
	if (inherited(born)) {
		if (!--s->regions)
			free(s);
		return;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&l->lock);
	s->regions--;
	sweep(v);
	pthread_mutex_unlock(&l->lock);
	pthread_setcancelstate(cancel, NULL);
}

/* shares_clear frees the list of a context whose connection has ended. */
void shares_clear(struct shares *l)
{
	for (struct share *s; (s = l->first); free(s))
		l->first = s->next;
	pthread_mutex_destroy(&l->lock);
}
