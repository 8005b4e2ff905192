/*
 * Completion queues: creation, size, end. The daemon writes completions into a ring in shared memory, which the program
 * polls (poll.c, cq_ex.c); events of an armed CQ come by its channel (channel.c).
 */
#include "lib.h"

#include <stdlib.h>
#include <unistd.h>

/*
 * slots returns the entries of the ring for a program that asks for cqe. As in NICs there is room for at least one
 * more: programs lean on it, perftest's send_lat for one, which asks for 1 and leaves one unpolled.
 */
static uint32_t slots(uint32_t cqe)
{
	uint32_t n = 2;

	while (n <= cqe)
		n *= 2;
	return n;
}

/* create makes the CQ at the daemon. Of the entries that the ring has, cqe says one less: what a program may leave in
 * it. The caller holds the mutex of the context, and calls release after an error. */
static int create(struct cq *q, struct ibv_context *v, uint32_t cqe, uint32_t vector)
{
	struct channel *h = q->v.channel ? container_of(q->v.channel, struct channel, v) : NULL;
	uint32_t entries = slots(cqe);
	struct goroce_create_cq request = {entries, h ? h->handle : 0, vector};
	struct goroce_ring r;
	struct shared made;
	int err = shared_rings(v, GOROCE_CREATE_CQ, &request, sizeof(request), ring_size(RING_CQ, entries, 0, 0), &r, &made);

	if (err)
		return err;
	q->v.handle = r.handle;
	q->v.cqe = (int)entries - 1;
	err = ring_take(&q->ring, &q->pages, &made, r.size, RING_CQ);
	if (!err)
		err = table_add(v, r.handle, KIND_CQ, q, &q->async_taken);
	if (err)
		close_handle(v, GOROCE_KIND_CQ, r.handle, NULL);
	return err;
}

static void release(struct cq *q)
{
	shared_free(&q->pages);
	ring_destroy(&q->ring);
	pthread_mutex_destroy(&q->v.mutex);
	pthread_cond_destroy(&q->v.cond);
	free(q);
}

/* make refuses with EINVAL what rdma_rxe refuses so, and with ENODEV a channel of the parent in a forked child.
 * comp_vector is the number of a shard, which serves the CQ; with 0 the daemon chooses one. */
static struct cq *make(struct ibv_context *v, const struct ibv_cq_init_attr_ex *a)
{
	struct cq *q;
	int err = ready(v);

	if (!err && a->channel)
		err = dead(v, container_of(a->channel, struct channel, v)->born);
	if (err)
		return fail(err);
	if (!a->cqe || above("ibv_create_cq", "cqe", a->cqe, "max_cqe", context_of(v)->attr.max_cqe) ||
	    a->comp_vector >= (uint32_t)v->num_comp_vectors)
		return fail(EINVAL);
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	ring_init(&q->ring);
	pthread_mutex_init(&q->v.mutex, NULL);
	pthread_cond_init(&q->v.cond, NULL);
	q->born = forks;
	q->v.context = v;
	q->v.channel = a->channel;
	q->v.cq_context = a->cq_context;
	pthread_mutex_lock(&v->mutex);
	err = create(q, v, a->cqe, a->comp_vector);
	if (!err && a->channel)
		a->channel->refcnt++;
	pthread_mutex_unlock(&v->mutex);
	if (err) {
		release(q);
		return fail(err);
	}
	cq_set_reads(&q->ex);
	return q;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *v, int cqe, void *cq_context, struct ibv_comp_channel *channel,
		int vector)
{
	struct ibv_cq_init_attr_ex a = {
		.cqe = cqe < 0 ? 0 : (uint32_t)cqe,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)vector,
	};
	struct cq *q = make(v, &a);

	return q ? &q->v : NULL;
}

/* cq_create_ex offers the fields that completions here have, or that are always zero on RoCE. VLAN tags, flow tags
 * and tag matching are refused. A parent domain (MASK_PD) is a hint to a provider's locking, and means nothing. */
struct ibv_cq_ex *cq_create_ex(struct ibv_context *v, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t fields = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
		IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS |
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	const uint32_t masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct cq *q;

	/* SINGLE_THREADED is a hint. IGNORE_OVERRUN is refused: a full ring has no room for the next completion. */
	if (attr->wc_flags & ~fields || attr->comp_mask & ~masks ||
			flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return fail(EOPNOTSUPP);
	q = make(v, attr);
	return q ? &q->ex : NULL;
}

/* busy reports whether an entry is a QP with arg as its send CQ and with send requests that are not complete. The
 * lock of the table is held. That of the ring is not taken: a program that builds requests (ibv_wr_start) has it, and
 * may wait for that of the table. The words of the ring are enough: if the daemon has written nonsense there, settle
 * waits for its end. */
static bool busy(void *arg, const struct entry *e)
{
	const struct qp *q = e->object;

	return e->kind == KIND_QP && q->v.send_cq == arg && q->sq.base &&
		atomic_load_explicit(ring_word(&q->sq, RING_CONSUMER), memory_order_acquire) !=
		atomic_load_explicit(ring_word(&q->sq, RING_PRODUCER), memory_order_acquire);
}

/*
 * settle waits until all posted send requests are complete, but not much longer than half a second. A CQ may not
 * become smaller than what is in it, and programs expect that what they have just posted counts: on an RNIC it is
 * complete soon.
 */
static void settle(struct ibv_cq *v)
{
	const struct timespec step = {.tv_nsec = 100000};

	for (int i = 0; i < 5000 && table_any(&context_of(v->context)->objects, busy, v); i++)
		nanosleep(&step, NULL);
}

/*
 * ibv_resize_cq gets a ring of another size, to which the daemon has moved the completions. It refuses a size that is
 * less than they are. The lock keeps polls out from before the request until the new ring is there. If the new memory
 * cannot be made or mapped, the daemon is not asked, and the CQ keeps the ring that it has.
 */
EXPORT int ibv_resize_cq(struct ibv_cq *v, int cqe)
{
	struct cq *q = cq_of(v);
	struct goroce_resize_cq request = {v->handle, slots((uint32_t)cqe)};
	struct goroce_ring r;
	struct shared made;
	int err = dead(v->context, q->born);

	if (err)
		return failed(err);
	if (cqe < 1 || above("ibv_resize_cq", "cqe", (uint32_t)cqe, "max_cqe",
			     context_of(v->context)->attr.max_cqe))
		return failed(EINVAL);
	if (cqe < v->cqe)
		settle(v);
	pthread_mutex_lock(&q->ring.lock);
	err = shared_rings(v->context, GOROCE_RESIZE_CQ, &request, sizeof(request),
			ring_size(RING_CQ, request.entries, 0, 0), &r, &made);
	if (!err) {
		err = ring_take(&q->ring, &q->pages, &made, r.size, RING_CQ);
		if (err) /* the daemon uses the new ring: polls must fail, or they would find nothing for ever */
			control_break(&context_of(v->context)->control);
	}
	if (!err)
		v->cqe = (int)request.entries - 1;
	pthread_mutex_unlock(&q->ring.lock);
	return err;
}

/* No completion is held back, so there is nothing to moderate. */
int cq_moderate(struct ibv_cq *v __attribute__((unused)), struct ibv_modify_cq_attr *attr __attribute__((unused)))
{
	return EOPNOTSUPP;
}

/* wait_for_acks waits until the program has acknowledged all events that it has taken. No further one is taken, as
 * the CQ is not in the table any more. */
static void wait_for_acks(struct cq *q)
{
	pthread_mutex_lock(&q->v.mutex);
	while (q->v.comp_events_completed != q->comp_taken || q->v.async_events_completed != q->async_taken)
		pthread_cond_wait(&q->v.cond, &q->v.mutex);
	pthread_mutex_unlock(&q->v.mutex);
}

/* leave gives up the reference to the channel, which may be gone afterwards. */
static void leave(struct ibv_context *v, struct ibv_comp_channel *channel)
{
	pthread_mutex_lock(&v->mutex);
	channel->refcnt--;
	pthread_mutex_unlock(&v->mutex);
}

/*
 * ibv_destroy_cq is EBUSY as long as QPs or SRQs use the CQ, which the daemon knows: it is asked before anything
 * changes. Then the CQ leaves the table, and from there on no thread takes an event of it; those that were sent and
 * not taken are skipped; those that were taken are waited for. The channel is given up last. Another thread may
 * destroy it as soon as its last CQ has left, and channel_cq_closed uses it.
 */
EXPORT int ibv_destroy_cq(struct ibv_cq *v)
{
	struct context *c = context_of(v->context);
	struct cq *q = cq_of(v);
	struct goroce_close_reply r;
	int err;

	if (inherited(q->born)) { /* its locks may stay locked, and no table has it */
		if (v->channel)
			leave(v->context, v->channel);
		free(q);
		return 0;
	}
	pthread_mutex_lock(&v->context->mutex);
	err = close_handle(v->context, GOROCE_KIND_CQ, v->handle, &r);
	pthread_mutex_unlock(&v->context->mutex);
	if (err)
		return err;
	table_remove(&c->objects, v->handle);
	async_closed(c, r.events, q->async_taken);
	if (v->channel)
		channel_cq_closed(container_of(v->channel, struct channel, v), r.completions, q->comp_taken);
	wait_for_acks(q);
	if (v->channel)
		leave(v->context, v->channel);
	release(q);
	return 0;
}
