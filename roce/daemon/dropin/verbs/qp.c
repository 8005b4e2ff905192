/*
 * Queue pairs: creation and end. The QP itself is the daemon's; here are its rings, send ring first, in one memfd,
 * and what programs find in struct ibv_qp. The mutex and the condition of that struct are used as in rdma-core: for
 * the count of acknowledged events, here also for the state and the list of groups, over a request to the daemon.
 * Each ring has a lock of its own, which posts take, and which no verb holds while it asks the daemon.
 */
#include "lib.h"

#include <stdlib.h>

/*
 * Inline room that QPs have although the program has not asked for it: for short payloads (short.c), and because
 * programs count on some. A slot with an SGE has LEAST_INLINE anyway, as it is of whole cache lines. A QP gets up to
 * MORE_INLINE as long as all its slots together have at most MORE_IN_ALL.
 */
enum { LEAST_INLINE = 64, MORE_INLINE = 256, MORE_IN_ALL = 64 << 10 };

/* sends and receives say which queues a type of QP has. An XRC target has neither: its receives are those of SRQs. */
static bool sends(int type) { return type != IBV_QPT_XRC_RECV; }

static bool receives(int type) { return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD; }

static uint32_t handle_of(struct ibv_cq *cq) { return cq ? cq->handle : 0; }

/* attach attaches to the rings of a reply. Posts use shard and doorbell as indices without looking again, so they are
 * checked here; the receive ring begins behind the send ring, on a cache line. A queue without entries has no ring, and
 * posts to it find it full. shared_rings has compared the lengths with the memory. */
static int attach(struct qp *q, const struct goroce_ring *r)
{
	struct doorbells *d = &context_of(q->v.context)->doorbells;
	int err = 0;

	if (r->shard >= d->shards || r->doorbell >= d->count || r->send % LINE)
		return EPROTO;
	q->shard = r->shard;
	q->doorbell = r->doorbell;
	if (r->send)
		err = ring_attach(&q->sq, q->pages.at, r->send, RING_SEND);
	if (r->recv && !err)
		err = ring_attach(&q->rq, q->pages.at + r->send, r->recv, RING_RECV);
	return err;
}

/* inline_room is how much a QP gets if the daemon's limits allow it: never less than it asks for. */
static uint32_t inline_room(const struct qp *q, const struct ibv_qp_cap *c)
{
	uint32_t most = context_of(q->v.context)->attr.max_inline, room = MORE_INLINE;

	while (room > LEAST_INLINE && (room > most || (uint64_t)room * c->max_send_wr > MORE_IN_ALL))
		room /= 2;
	return c->max_inline_data > room ? c->max_inline_data : room;
}

/* call_daemon makes the request with memory for the rings. Each try needs memory of its own: the daemon may have
 * sealed that of the try before (docs/abi.md, "Shared memory"). */
static int call_daemon(struct qp *q, const struct goroce_create_qp *r, struct goroce_ring *reply)
{
	uint64_t size = ring_size(RING_SEND, r->max_send_wr, r->max_send_sge, r->max_inline) +
		ring_size(RING_RECV, r->max_recv_wr, r->max_recv_sge, 0);

	return shared_rings(q->v.context, GOROCE_CREATE_QP, r, sizeof(*r), size, reply, &q->pages);
}

/*
 * request asks for the QP. XRC ends have their receives from SRQs of the domain. Attributes that the type has not are
 * not passed on, as programs may leave anything there. ENOMEM is what a limit of the daemon gives: inline room that
 * the program has not asked for must not be the reason why it gets no QP, so the second try has as little as there
 * can be. What the program is told of the queues is what fits into the rings, which is more than it has asked for (as
 * with NICs).
 */
static int request(struct qp *q, const struct ibv_qp_init_attr_ex *a)
{
	int type = a->qp_type;
	const struct ibv_qp_cap *c = &a->cap;
	bool rq = receives(type) && !a->srq;
	struct goroce_create_qp r = {
		.pd = a->pd && sends(type) ? a->pd->handle : 0,
		.send_cq = sends(type) ? handle_of(a->send_cq) : 0,
		.recv_cq = receives(type) ? handle_of(a->recv_cq) : 0,
		.srq = receives(type) && a->srq ? a->srq->handle : 0,
		.xrcd = type == IBV_QPT_XRC_RECV ? xrcd_of(a->xrcd)->handle : 0,
		.type = (uint32_t)type,
		.max_send_wr = sends(type) ? c->max_send_wr : 0,
		.max_recv_wr = rq ? c->max_recv_wr : 0,
		.max_send_sge = sends(type) ? c->max_send_sge : 0,
		.max_recv_sge = rq ? c->max_recv_sge : 0,
		.sig_all = a->sq_sig_all != 0,
	};
	struct goroce_ring reply;
	int err;

	if (sends(type))
		r.max_inline = inline_room(q, c);
	err = call_daemon(q, &r, &reply);
	if (err == ENOMEM && r.max_inline > LEAST_INLINE && r.max_inline > c->max_inline_data) {
		r.max_inline = c->max_inline_data > LEAST_INLINE ? c->max_inline_data : LEAST_INLINE;
		err = call_daemon(q, &r, &reply);
	}
	if (err)
		return err;
	q->v.handle = reply.handle;
	q->v.qp_num = reply.num;
	err = attach(q, &reply);
	if (!err)
		err = table_add(q->v.context, reply.handle, KIND_QP, q, &q->async_taken);
	if (err)
		close_handle(q->v.context, GOROCE_KIND_QP, reply.handle, NULL);
	q->cap = (struct ibv_qp_cap){q->sq.entries, q->rq.entries, q->sq.max_sge, q->rq.max_sge, q->sq.max_inline};
	return err;
}

/* make makes the struct without the QP. NULL if there is no memory: calloc has set errno. */
static struct qp *make(struct ibv_context *v, const struct ibv_qp_init_attr_ex *a)
{
	struct qp *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	ring_init(&q->sq);
	ring_init(&q->rq);
	pthread_mutex_init(&q->v.mutex, NULL);
	pthread_cond_init(&q->v.cond, NULL);
	q->born = forks;
	q->v.context = v;
	q->v.qp_context = a->qp_context;
	if (a->comp_mask & IBV_QP_INIT_ATTR_PD) /* librdmacm reads that of an XRC target, too */
		q->v.pd = a->pd;
	if (sends(a->qp_type)) { /* what the type has not may be anything */
		q->v.send_cq = a->send_cq;
		q->pd = a->pd->handle;
	}
	if (receives(a->qp_type))
		q->v.recv_cq = a->recv_cq;
	q->v.srq = receives(a->qp_type) ? a->srq : NULL;
	q->v.qp_type = a->qp_type;
	q->v.state = IBV_QPS_RESET;
	q->sig_all = a->sq_sig_all;
	return q;
}

/* release frees the struct. Nobody may use the QP any more: it is closed at the daemon, or was not made. */
static void release(struct qp *q)
{
	for (struct membership *m; (m = q->groups);) {
		q->groups = m->next;
		free(m);
	}
	shared_free(&q->pages);
	ring_destroy(&q->sq);
	ring_destroy(&q->rq);
	pthread_mutex_destroy(&q->v.mutex);
	pthread_cond_destroy(&q->v.cond);
	free(q);
}

static const char create[] = "ibv_create_qp";

/* check refuses what rdma_rxe refuses with EINVAL; types that verbs have and the device has not get EOPNOTSUPP.
 * Pointers that the type needs are looked at here, before anything dereferences them. The limits are those of the
 * device as it was opened, so GOROCE_DEBUG=1 can name the one that was exceeded, of which the daemon does not hear. */
static int check(struct ibv_context *v, const struct ibv_qp_init_attr_ex *a)
{
	const struct goroce_device_reply *d = &context_of(v)->attr;
	const struct ibv_qp_cap *c = &a->cap;

	switch (a->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		if (!a->send_cq || !a->recv_cq || !a->pd)
			return EINVAL;
		break;
	case IBV_QPT_XRC_SEND:
		if (!a->send_cq || !a->pd)
			return EINVAL;
		break;
	case IBV_QPT_XRC_RECV:
		return a->xrcd ? 0 : EINVAL;
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_DRIVER:
		return EOPNOTSUPP;
	default:
		return EINVAL;
	}
	if (above(create, "max_send_wr", c->max_send_wr, "max_qp_wr", d->max_qp_wr) ||
	    above(create, "max_send_sge", c->max_send_sge, "max_sge", d->max_sge) ||
	    above(create, "max_inline_data", c->max_inline_data, "what is inline in a request", d->max_inline))
		return EINVAL;
	if (receives(a->qp_type) && !a->srq &&
	    (above(create, "max_recv_wr", c->max_recv_wr, "max_qp_wr", d->max_qp_wr) ||
	     above(create, "max_recv_sge", c->max_recv_sge, "max_sge", d->max_sge)))
		return EINVAL;
	return 0;
}

static bool cq_inherited(struct ibv_cq *v) { return v && inherited(cq_of(v)->born); }

/* has_inherited reports whether an object that a QP is to have is the parent's: its handle may be the number of another
 * object on this process's connection. check has seen that the objects which the type needs are there. */
static bool has_inherited(const struct ibv_qp_init_attr_ex *a)
{
	int type = a->qp_type;

	if (type == IBV_QPT_XRC_RECV)
		return inherited(xrcd_of(a->xrcd)->born);
	return inherited(pd_of(a->pd)->born) || cq_inherited(a->send_cq) ||
		(receives(type) && (cq_inherited(a->recv_cq) || (a->srq && inherited(srq_of(a->srq)->born))));
}

/* check_ops refuses operations of ibv_wr_* that the type of QP has not. The table has the opcode of each bit. */
static int check_ops(enum ibv_qp_type type, uint64_t ops)
{
	static const uint8_t opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW,
		IBV_WR_SEND_WITH_INV, UINT8_MAX /* TSO */, IBV_WR_FLUSH, IBV_WR_ATOMIC_WRITE,
	};
	struct ibv_qp probe = {.qp_type = type};

	for (unsigned int op = 0; ops; op++, ops >>= 1) {
		if (ops & 1 && (op >= sizeof(opcodes) || !qp_takes(&probe, opcodes[op])))
			return EOPNOTSUPP;
	}
	return 0;
}

/*
 * qp_create_ex is ibv_create_qp_ex. Fields behind comp_mask count only with their bit: older programs have a shorter
 * struct, others leave them undefined. Whatever is set and not known gets EOPNOTSUPP, so that programs go on without
 * it. The functions of ibv_wr_* are there only for a program that has named the operations it will use, as in
 * rdma-core.
 */
struct ibv_qp *qp_create_ex(struct ibv_context *v, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp_init_attr_ex a = *attr;
	uint64_t ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
	struct qp *q;
	int err = ready(v);

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		a.pd = NULL;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD))
		a.xrcd = NULL;
	if (attr->comp_mask & ~known || (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags))
		return fail(EOPNOTSUPP);
	if (!err)
		err = check(v, &a);
	if (!err && has_inherited(&a))
		err = ENODEV;
	if (!err)
		err = check_ops(a.qp_type, ops);
	if (err)
		return fail(err);
	q = make(v, &a);
	if (!q)
		return NULL;
	err = request(q, &a);
	if (err) {
		release(q);
		return fail(err);
	}
	attr->cap = q->cap;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp_set_builders(q);
	return &q->v;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex a = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp *qp;

	memcpy(&a, attr, offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(attr->sq_sig_all));
	qp = qp_create_ex(pd->context, &a);
	if (qp)
		attr->cap = a.cap;
	return qp;
}

_Static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) == offsetof(struct ibv_qp_init_attr, sq_sig_all),
	       "the extended attributes begin with the others");

/* qp_open opens an XRC target that another process, or another context, has made in the domain. It has no rings and no
 * doorbell here. All who have it open get its asynchronous events, and it ends with the last of them. */
struct ibv_qp *qp_open(struct ibv_context *v, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct ibv_qp_init_attr_ex a = {.qp_type = attr->qp_type};
	struct goroce_open_qp request;
	struct goroce_object r;
	struct qp *q;
	int err;

	if ((attr->comp_mask & needed) != needed || attr->comp_mask & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT) ||
			attr->qp_type != IBV_QPT_XRC_RECV)
		return fail(EINVAL);
	if (inherited(xrcd_of(attr->xrcd)->born))
		return fail(ENODEV);
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		a.qp_context = attr->qp_context;
	q = make(v, &a);
	if (!q)
		return NULL;
	request = (struct goroce_open_qp){xrcd_of(attr->xrcd)->handle, attr->qp_num, (uint32_t)attr->qp_type};
	err = ask(v, GOROCE_OPEN_QP, &request, sizeof(request), &r, sizeof(r));
	if (!err) {
		q->v.handle = r.handle;
		q->v.qp_num = attr->qp_num;
		err = table_add(v, r.handle, KIND_QP, q, &q->async_taken);
		if (err)
			close_handle(v, GOROCE_KIND_QP, r.handle, NULL);
	}
	if (err) {
		release(q);
		return fail(err);
	}
	return &q->v;
}

/*
 * ibv_destroy_qp. The order matters. First the daemon closes the QP: when it has answered, it uses the rings no more,
 * and says how many events it has sent. Then the table forgets the QP, so that no thread takes an event of it any
 * more; those still in the socket are skipped. Then it waits until the program has acknowledged the events that it
 * has taken (ibv_destroy_qp(3)), as it may look at the QP until then, and only then frees it. EBUSY, as the kernel
 * has it: the QP is in a multicast group. If the daemon has ended, so has the membership.
 */
EXPORT int ibv_destroy_qp(struct ibv_qp *v)
{
	struct context *c = context_of(v->context);
	struct qp *q = qp_of(v);
	struct goroce_close_reply r;
	int err;

	if (inherited(q->born)) { /* its locks may stay locked, and no table has it */
		free(q);
		return 0;
	}
	pthread_mutex_lock(&v->mutex);
	err = q->groups && !gone(v->context) ? EBUSY : 0;
	pthread_mutex_unlock(&v->mutex);
	if (err)
		return errno = err;
	err = close_handle(v->context, GOROCE_KIND_QP, v->handle, &r);
	if (err)
		return err;
	table_remove(&c->objects, v->handle);
	async_closed(c, r.events, q->async_taken);
	async_await(&v->mutex, &v->cond, &v->events_completed, q->async_taken);
	release(q);
	return 0;
}

/* group asks the daemon to attach the QP to a group, or to detach it. The caller holds the mutex until it has noted the
 * outcome, so that the list is in the order of the daemon's answers. It has looked before whether the QP is the
 * parent's, as the mutex of such a QP may stay locked. */
static int group(struct ibv_qp *v, uint16_t op, const union ibv_gid *gid)
{
	struct goroce_group request = {.qp = v->handle};

	memcpy(request.gid, gid->raw, sizeof(request.gid));
	return ask(v->context, op, &request, sizeof(request), NULL, 0);
}

/* membership_of returns where the membership in a group is linked, or the end of the list. */
static struct membership **membership_of(struct qp *q, const union ibv_gid *gid)
{
	struct membership **m = &q->groups;

	while (*m && memcmp(&(*m)->gid, gid, sizeof(*gid)))
		m = &(*m)->next;
	return m;
}

/* ibv_attach_mcast may be called again for a group, which changes nothing: there is one membership, which one detach
 * ends. The memory for it is allocated first, as nothing may fail after the daemon has attached the QP. */
EXPORT int ibv_attach_mcast(struct ibv_qp *v, const union ibv_gid *gid, uint16_t lid __attribute__((unused)))
{
	struct membership *m, **at;
	int err;

	if (inherited(qp_of(v)->born))
		return failed(ENODEV);
	m = calloc(1, sizeof(*m));
	if (!m)
		return ENOMEM;
	m->gid = *gid;
	pthread_mutex_lock(&v->mutex);
	err = group(v, GOROCE_ATTACH, gid);
	at = membership_of(qp_of(v), gid);
	if (!err && !*at) {
		*at = m;
		m = NULL;
	}
	pthread_mutex_unlock(&v->mutex);
	free(m);
	return err;
}

EXPORT int ibv_detach_mcast(struct ibv_qp *v, const union ibv_gid *gid, uint16_t lid __attribute__((unused)))
{
	struct membership *m = NULL, **at;
	int err;

	if (inherited(qp_of(v)->born))
		return failed(ENODEV);
	pthread_mutex_lock(&v->mutex);
	err = group(v, GOROCE_DETACH, gid);
	at = membership_of(qp_of(v), gid);
	if (!err && *at) {
		m = *at;
		*at = m->next;
	}
	pthread_mutex_unlock(&v->mutex);
	free(m);
	return err;
}
