/*
 * Completion channels. The daemon sends the handle of a CQ on the channel's socket (mailbox.c) when the CQ was armed
 * and has a completion. As asynchronous events (events.c), those that the program has taken and those that it has
 * acknowledged are counted for each CQ, and ibv_destroy_cq waits until these are as many.
 */
#include "lib.h"

#include <stdlib.h>

enum { COMPLETION_WORDS = sizeof(struct goroce_completion) / sizeof(uint32_t) };

/* ibv_create_comp_channel leaves the descriptor to the program, in v.fd, to wait for and to set O_NONBLOCK. The library
 * reads from whatever number is there (mailbox.c, follow). */
EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *v)
{
	struct channel *h = calloc(1, sizeof(*h));
	struct goroce_object r;
	int fd, err;

	if (!h)
		return NULL;
	err = ask_fds(v, GOROCE_CREATE_CHANNEL, NULL, 0, &r, sizeof(r), 1, &fd);
	if (!err) {
		err = mailbox_open(&h->box, fd);
		if (err) {
			fds_close(fd);
			close_handle(v, GOROCE_KIND_CHANNEL, r.handle, NULL);
		}
	}
	if (err) {
		free(h);
		return fail(err);
	}
	h->handle = r.handle;
	h->born = forks;
	h->v = (struct ibv_comp_channel){.context = v, .fd = fd};
	h->box.at = &h->v.fd;
	return &h->v;
}

/* ibv_destroy_comp_channel refuses a channel that has CQs with EBUSY, as rdma-core does. refcnt counts them, under the
 * lock of the context. */
EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *v)
{
	struct channel *h = container_of(v, struct channel, v);
	int err;

	pthread_mutex_lock(&v->context->mutex);
	err = v->refcnt ? EBUSY : 0;
	pthread_mutex_unlock(&v->context->mutex);
	if (err)
		return err;
	if (inherited(h->born)) { /* its locks may stay locked */
		free(h);
		return 0;
	}
	/* Before the daemon closes its end, which would look like the daemon's own. It waits for threads of the program,
	 * which may wait for the lock. */
	mailbox_end(&h->box);
	err = close_handle(v->context, GOROCE_KIND_CHANNEL, h->handle, NULL);
	if (err)
		return err;
	mailbox_close(&h->box);
	if (!h->box.stays)
		free(h);
	return 0;
}

struct taking {
	struct context *context;
	struct cq *cq;
};

/* live_completion finds the CQ of an event, and counts that the program has taken it. Both are done under one lock:
 * until the event is acknowledged, ibv_destroy_cq waits, and the program may use the pointer. */
static bool live_completion(void *arg, const uint32_t *message, bool take)
{
	struct taking *t = arg;
	struct entry *e;
	bool live;

	pthread_mutex_lock(&t->context->objects.lock);
	e = table_find(&t->context->objects, message[0]);
	live = e && e->kind == KIND_CQ;
	if (live && take) {
		t->cq = e->object;
		t->cq->comp_taken++;
	}
	pthread_mutex_unlock(&t->context->objects.lock);
	return live;
}

/*
 * ibv_get_cq_event waits for the next event. It returns -1 with errno: EAGAIN and EINTR as read(2) would; EBADF if
 * another thread destroys the channel; EIO if the daemon has ended; ENODEV for a parent's channel.
 */
EXPORT int ibv_get_cq_event(struct ibv_comp_channel *v, struct ibv_cq **cq, void **cq_context)
{
	struct channel *h = container_of(v, struct channel, v);
	struct taking t = {.context = context_of(v->context)};
	int err = inherited(h->born) ? ENODEV : mailbox_enter(&h->box);

	if (!err) {
		pthread_cleanup_push(mailbox_leave, &h->box);
		err = mailbox_take(&h->box, COMPLETION_WORDS, live_completion, &t);
		pthread_cleanup_pop(true);
	}
	if (err) {
		errno = err;
		return -1;
	}
	*cq = &t.cq->v;
	*cq_context = t.cq->v.cq_context;
	return 0;
}

/* channel_cq_closed is called after a CQ was closed: how many of its events were sent, and how many taken. The CQ is
 * not in the table any more, and still has its reference to the channel. */
void channel_cq_closed(struct channel *h, uint32_t sent, uint32_t taken)
{
	struct taking t = {.context = context_of(h->v.context)};

	if (sent > taken)
		mailbox_expect_stale(&h->box, sent - taken, COMPLETION_WORDS, live_completion, &t);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (inherited(cq_of(cq)->born)) /* the mutex may stay locked */
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
