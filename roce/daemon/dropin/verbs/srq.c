/*
 * Shared receive queues. The SRQ itself is the daemon's; here is its receive ring, in a memfd of its own, which only
 * this process fills. An XRC SRQ also has a number, which requests of peers name, and a CQ for the receives.
 */
#include "lib.h"

#include <stdlib.h>
#include <unistd.h>

/* release frees the struct of an SRQ that the daemon has closed, or has not made. */
static void release(struct srq *q)
{
	shared_free(&q->pages);
	ring_destroy(&q->ring);
	pthread_mutex_destroy(&q->v.mutex);
	pthread_cond_destroy(&q->v.cond);
	free(q);
}

/* request asks for the SRQ, and attaches to its ring. If that fails when the daemon has made it, it is closed again:
 * the caller frees the struct in any case. */
static int request(struct srq *q, const struct ibv_srq_init_attr_ex *a)
{
	struct ibv_context *v = q->v.context;
	struct goroce_create_srq r = {
		.pd = a->pd->handle,
		.type = (uint32_t)a->srq_type,
		.max_wr = a->attr.max_wr,
		.max_sge = a->attr.max_sge ? a->attr.max_sge : 1, /* as many as rdma_rxe's have, at least */
	};
	struct goroce_ring reply;
	struct shared made;
	int err;

	if (a->srq_type == IBV_SRQT_XRC) {
		r.xrcd = xrcd_of(a->xrcd)->handle;
		r.cq = a->cq->handle;
	}
	err = shared_rings(v, GOROCE_CREATE_SRQ, &r, sizeof(r), ring_size(RING_RECV, r.max_wr, r.max_sge, 0), &reply,
			&made);
	if (err)
		return err;
	q->v.handle = reply.handle;
	q->num = reply.num;
	err = ring_take(&q->ring, &q->pages, &made, reply.size, RING_RECV);
	if (!err)
		err = table_add(v, reply.handle, KIND_SRQ, q, &q->async_taken);
	if (err)
		close_handle(v, GOROCE_KIND_SRQ, reply.handle, NULL);
	return err;
}

/* check refuses what rdma_rxe refuses with EINVAL. srq_limit means nothing here (ibv_create_srq(3)). */
static int check(struct ibv_context *v, const struct ibv_srq_init_attr_ex *a)
{
	const struct goroce_device_reply *d = &context_of(v)->attr;

	if (a->srq_type != IBV_SRQT_BASIC && a->srq_type != IBV_SRQT_XRC)
		return EOPNOTSUPP;
	if (!a->pd || (a->srq_type == IBV_SRQT_XRC && (!a->xrcd || !a->cq)))
		return EINVAL;
	if (!a->attr.max_wr || above("ibv_create_srq", "max_wr", a->attr.max_wr, "max_srq_wr", d->max_srq_wr) ||
	    above("ibv_create_srq", "max_sge", a->attr.max_sge, "max_srq_sge", d->max_srq_sge))
		return EINVAL;
	return 0;
}

/* check_parts refuses objects that do not work, such as a parent's in a forked child. */
static int check_parts(const struct ibv_srq_init_attr_ex *a)
{
	int err = pd_dead(a->pd);

	if (!err && a->srq_type == IBV_SRQT_XRC && (inherited(xrcd_of(a->xrcd)->born) || inherited(cq_of(a->cq)->born)))
		err = ENODEV;
	return err;
}

/* srq_create_ex is ibv_create_srq_ex. Fields that comp_mask does not name may be anything, so they are replaced by
 * what they mean then; without a type the SRQ is an ordinary one. Tag matching gets EOPNOTSUPP. The sizes that are
 * written back are those of the ring, which has at least what was asked for. */
struct ibv_srq *srq_create_ex(struct ibv_context *v, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			IBV_SRQ_INIT_ATTR_CQ;
	struct ibv_srq_init_attr_ex a = *attr;
	struct srq *q;
	int err = ready(v);

	if (attr->comp_mask & ~known)
		return fail(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		a.srq_type = IBV_SRQT_BASIC;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		a.pd = NULL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD))
		a.xrcd = NULL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ))
		a.cq = NULL;
	if (!err)
		err = check(v, &a);
	if (!err)
		err = check_parts(&a);
	if (err)
		return fail(err);
	q = calloc(1, sizeof(*q)); /* which sets errno */
	if (!q)
		return NULL;
	ring_init(&q->ring);
	pthread_mutex_init(&q->v.mutex, NULL);
	pthread_cond_init(&q->v.cond, NULL);
	q->born = forks;
	q->v.context = v;
	q->v.srq_context = a.srq_context;
	q->v.pd = a.pd;
	q->xrc = a.srq_type == IBV_SRQT_XRC;
	err = request(q, &a);
	if (err) {
		release(q);
		return fail(err);
	}
	attr->attr.max_wr = q->ring.entries;
	attr->attr.max_sge = q->ring.max_sge;
	return &q->v;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex a = {
		.srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_srq *srq = srq_create_ex(pd->context, &a);

	if (srq)
		attr->attr = a.attr;
	return srq;
}

/*
 * resize gets a ring of another size, to which the daemon has moved the receives. The lock is held over the request: a
 * receive that another thread posted to the old ring after the move would be lost. If the daemon refuses, the old ring
 * stays as it is. The limit may be changed by the same request.
 */
static int resize(struct srq *q, const struct goroce_srq_attr *request)
{
	struct goroce_ring r;
	struct shared made;
	int err = dead(q->v.context, q->born);

	if (err)
		return failed(err);
	if (!request->max_wr || above("ibv_modify_srq", "max_wr", request->max_wr, "max_srq_wr",
				      context_of(q->v.context)->attr.max_srq_wr))
		return failed(EINVAL);
	pthread_mutex_lock(&q->ring.lock);
	err = shared_rings(q->v.context, GOROCE_MODIFY_SRQ, request, sizeof(*request),
			ring_size(RING_RECV, request->max_wr, q->ring.max_sge, 0), &r, &made);
	if (!err) {
		err = ring_take(&q->ring, &q->pages, &made, r.size, RING_RECV);
		if (err) /* the daemon uses the new ring: posts must fail, or nobody would see them */
			control_break(&context_of(q->v.context)->control);
	}
	pthread_mutex_unlock(&q->ring.lock);
	return err;
}

/* ibv_modify_srq refuses bits that it does not know, and a limit above the size that the SRQ has or will have by the
 * same call, as rdma_rxe does. A limit of 0 asks for no event. */
EXPORT int ibv_modify_srq(struct ibv_srq *v, struct ibv_srq_attr *attr, int mask)
{
	struct goroce_srq_attr r = {
		.srq = v->handle, .mask = (uint32_t)mask, .max_wr = attr->max_wr, .limit = attr->srq_limit,
	};
	struct srq *q = srq_of(v);

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return failed(EINVAL);
	if (mask & IBV_SRQ_LIMIT && attr->srq_limit > (mask & IBV_SRQ_MAX_WR ? attr->max_wr : q->ring.entries))
		return failed(EINVAL);
	if (mask & IBV_SRQ_MAX_WR)
		return resize(q, &r);
	if (inherited(q->born))
		return failed(ENODEV);
	return ask(v->context, GOROCE_MODIFY_SRQ, &r, sizeof(r), NULL, 0);
}

/* ibv_query_srq returns the size of the ring here, and the limit as it is now: 0 once its event was raised. */
EXPORT int ibv_query_srq(struct ibv_srq *v, struct ibv_srq_attr *attr)
{
	struct goroce_srq_attr r = {.srq = v->handle};
	struct srq *q = srq_of(v);
	int err = dead(v->context, q->born);

	if (err)
		return failed(err);
	err = ask(v->context, GOROCE_QUERY_SRQ, &r, sizeof(r), &r, sizeof(r));
	if (!err)
		*attr = (struct ibv_srq_attr){q->ring.entries, q->ring.max_sge, r.limit};
	return err;
}

/* ibv_destroy_srq closes, forgets, waits and frees in the order of ibv_destroy_qp, for the same reasons. EBUSY if QPs
 * have the SRQ yet. */
EXPORT int ibv_destroy_srq(struct ibv_srq *v)
{
	struct context *c = context_of(v->context);
	struct srq *q = srq_of(v);
	struct goroce_close_reply r;
	int err;

	if (inherited(q->born)) { /* its locks may stay locked, and no table has it */
		free(q);
		return 0;
	}
	err = close_handle(v->context, GOROCE_KIND_SRQ, v->handle, &r);
	if (err)
		return err;
	table_remove(&c->objects, v->handle);
	async_closed(c, r.events, q->async_taken);
	async_await(&v->mutex, &v->cond, &v->events_completed, q->async_taken);
	release(q);
	return 0;
}

/* srq_num is ibv_get_srq_num: only SRQs of XRC have a number. */
int srq_num(struct ibv_srq *v, uint32_t *num)
{
	if (!srq_of(v)->xrc)
		return EINVAL;
	*num = srq_of(v)->num;
	return 0;
}

/* srq_post rings no doorbell: the device looks at the ring when a message arrives. Receives before the first wrong
 * one are posted, and *bad_wr is that one. */
int srq_post(struct ibv_srq *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct srq *q = srq_of(v);
	int err = dead(v->context, q->born);
	uint32_t next;

	if (err) {
		*bad_wr = wr;
		return err;
	}
	pthread_mutex_lock(&q->ring.lock);
	for (next = q->ring.next; wr; wr = wr->next, next++) {
		err = ring_push_recv(&q->ring, next, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	ring_publish(&q->ring, next);
	pthread_mutex_unlock(&q->ring.lock);
	return err;
}

/* Tag matching is not offered. */
int srq_post_ops(struct ibv_srq *v __attribute__((unused)), void *op, void **bad_op)
{
	*bad_op = op;
	return EOPNOTSUPP;
}
