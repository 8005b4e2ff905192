/*
 * Queue pairs: states and attributes. The daemon's device keeps them and checks each transition by the tables of IBTA
 * 11.2.5.2. Here are the conversions, what Linux refuses beyond IBTA, and the copy of the state that posts look at.
 * The device changes the state also by itself, when a QP fails, and says so by an asynchronous event at best: the
 * copy is that of the last modify or query of this process.
 */
#include "lib.h"

#include <stdio.h>

/* The access flags of a QP that mean something. LOCAL_WRITE is ignored, but programs set it. */
enum { qp_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT };

/* What Linux takes as access flags of a QP, although some are of regions only. */
static const uint32_t qp_access = qp_rights | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;

/* Attributes that there are. Linux tells one of the future from one out of place. */
static const uint32_t all_attrs = (1 << 21) - 1 + IBV_QP_RATE_LIMIT;

/* check refuses what Linux refuses and the daemon does not, as it obeys IBTA in that, or does not learn of it. */
static int check(const struct ibv_qp *v, const struct ibv_qp_attr *a, uint32_t mask)
{
	enum ibv_qp_state from = __atomic_load_n(&v->state, __ATOMIC_RELAXED),
		to = mask & IBV_QP_STATE ? a->qp_state : from;
	bool ends = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
	bool migrates = (to == IBV_QPS_RTS && from >= IBV_QPS_RTR && from <= IBV_QPS_SQD) ||
		(to == IBV_QPS_SQD && from == IBV_QPS_SQD);

	if (mask & ~all_attrs)
		return EOPNOTSUPP;
	if (from == IBV_QPS_RESET && to == IBV_QPS_ERR)
		return EINVAL;
	if (mask & IBV_QP_CUR_STATE && ends)
		return EINVAL;
	if (mask & IBV_QP_PATH_MIG_STATE && (v->qp_type == IBV_QPT_UD || !migrates))
		return EINVAL;
	if (mask & IBV_QP_AV && v->qp_type == IBV_QPT_UC && from == IBV_QPS_SQD)
		return EINVAL;
	if (mask & IBV_QP_ACCESS_FLAGS && (uint32_t)a->qp_access_flags & ~qp_access)
		return EINVAL;
	return 0;
}

/* mask_for drops attributes that the type of QP does not have: programs set those of RC for both ends of XRC. It drops
 * IBV_QP_PATH_MIG_STATE, too: without alternate paths the state is always IBV_MIG_MIGRATED. */
static uint32_t mask_for(const struct ibv_qp *v, uint32_t mask)
{
	mask &= ~(uint32_t)IBV_QP_PATH_MIG_STATE;
	if (v->qp_type == IBV_QPT_XRC_SEND)
		mask &= ~(uint32_t)(IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);
	if (v->qp_type == IBV_QPT_XRC_RECV)
		mask &= ~(uint32_t)(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return mask;
}

/* convert fills in a request. Of attributes that the mask does not name anything may be in the struct, so only those
 * that are named are checked; the daemon ignores the others. A work queue cannot be resized, and there are no
 * alternate paths: both are EINVAL as with rdma_rxe. */
static int convert(const struct ibv_qp_attr *a, uint32_t mask, struct goroce_qp_attr *r)
{
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (mask & (IBV_QP_CAP | IBV_QP_ALT_PATH) || (mask & IBV_QP_PORT && !a->port_num))
		return EINVAL;
	if (mask & IBV_QP_STATE && a->qp_state > IBV_QPS_ERR)
		return EINVAL;
	r->mask = mask;
	r->state = a->qp_state;
	r->cur_state = a->cur_qp_state;
	r->port = a->port_num;
	r->pkey_index = a->pkey_index;
	r->access = a->qp_access_flags & qp_rights;
	r->qkey = a->qkey;
	r->path_mtu = mask & IBV_QP_PATH_MTU ? 128u << a->path_mtu : 0;
	r->dest_qpn = a->dest_qp_num;
	r->rq_psn = a->rq_psn & 0xFFFFFF;
	r->sq_psn = a->sq_psn & 0xFFFFFF;
	r->max_rd_atomic = a->max_rd_atomic;
	r->max_dest_rd_atomic = a->max_dest_rd_atomic;
	r->min_rnr_timer = a->min_rnr_timer;
	r->timeout = a->timeout;
	r->retry_cnt = a->retry_cnt;
	r->rnr_retry = a->rnr_retry;
	r->rate_limit = mask & IBV_QP_RATE_LIMIT ? a->rate_limit : 0; /* not there in old programs */
	r->sqd_notify = a->en_sqd_async_notify;
	return mask & IBV_QP_AV ? ah_to_daemon(&a->ah_attr, &r->ah) : 0;
}

/* set_state notes what the daemon has said. The caller holds the mutex of the QP, since before it asked: an answer to
 * another thread that is older cannot come later. */
static void set_state(struct ibv_qp *v, enum ibv_qp_state state)
{
	__atomic_store_n(&v->state, state, __ATOMIC_RELAXED);
}

/* note_wide says once if the path MTU of a QP is above the port's, as rdma_rxe allows: its messages must be short. It
 * asks for the port's MTU only when a QP has a larger one than was asked for before. The QP is modified all the same,
 * so errno stays as it was. */
static void note_wide(struct ibv_context *v, uint32_t path_mtu)
{
	static atomic_bool told;
	_Atomic uint32_t *active = &context_of(v)->active_mtu;
	struct goroce_port ask_for = {1, 0};
	struct goroce_port_reply r;
	int saved = errno;

	if (path_mtu <= atomic_load(active) || atomic_load(&told) || quiet())
		return;
	if (!ask(v, GOROCE_QUERY_PORT, &ask_for, sizeof(ask_for), &r, sizeof(r))) {
		atomic_store(active, r.active_mtu);
		if (path_mtu > r.active_mtu && !atomic_exchange(&told, true))
			fprintf(stderr,
				"goroce: path_mtu of a QP is %u, active_mtu of the port %u: messages that do not fit a frame "
				"fail; set it to active_mtu at both ends\n",
				path_mtu, r.active_mtu);
	}
	errno = saved;
}

/*
 * ibv_modify_qp. The mutex is held from before the request until the state is noted. It is the parent's in a forked
 * child and may stay locked there, so that is looked at first. After a reset the daemon has discarded the requests in
 * the rings, without completions; completions that the program has not polled yet are removed from both CQs
 * (cq_forget). This is done without the mutex, as cq_forget takes locks of CQs.
 */
EXPORT int ibv_modify_qp(struct ibv_qp *v, struct ibv_qp_attr *attr, int attr_mask)
{
	struct goroce_qp_attr r = {.qp = v->handle};
	uint32_t mask = mask_for(v, (uint32_t)attr_mask);
	int err = check(v, attr, (uint32_t)attr_mask);

	if (!err)
		err = convert(attr, mask, &r);
	if (!err)
		err = dead(v->context, qp_of(v)->born);
	if (err)
		return failed(err);
	pthread_mutex_lock(&v->mutex);
	err = ask(v->context, GOROCE_MODIFY_QP, &r, sizeof(r), NULL, 0);
	if (!err && mask & IBV_QP_STATE)
		set_state(v, attr->qp_state);
	pthread_mutex_unlock(&v->mutex);
	if (err && mask & IBV_QP_AV)
		return failed(ah_refused(v->context, &attr->ah_attr, err));
	if (!err && mask & IBV_QP_PATH_MTU)
		note_wide(v->context, r.path_mtu);
	if (err || !(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_RESET)
		return err;
	atomic_store(&qp_of(v)->told, false);
	if (v->send_cq)
		cq_forget(v->send_cq, v->qp_num);
	if (v->recv_cq && v->recv_cq != v->send_cq)
		cq_forget(v->recv_cq, v->qp_num);
	return 0;
}

/* qp_set_rate_limit is ibv_modify_qp_rate_limit: the rate is in kb/s, 0 for none. It changes no state, so it needs no
 * mutex. The sizes of bursts and packets are hints for the pacing of a NIC, and are not used; comp_mask has no bit
 * that is known. */
int qp_set_rate_limit(struct ibv_qp *v, struct ibv_qp_rate_limit_attr *attr)
{
	struct goroce_qp_attr r = {.qp = v->handle, .mask = IBV_QP_RATE_LIMIT, .rate_limit = attr->rate_limit};

	if (attr->comp_mask)
		return EINVAL;
	if (inherited(qp_of(v)->born))
		return failed(ENODEV);
	return ask(v->context, GOROCE_MODIFY_QP, &r, sizeof(r), NULL, 0);
}

/* mtu_of returns the ibv_mtu of a number of bytes; the least if the QP has none yet. */
static int mtu_of(uint32_t bytes)
{
	int code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 128u << code < bytes)
		code++;
	return code;
}

/* report fills in what programs know of struct ibv_qp_attr: those of before rate_limit have no room for it. The
 * queues are as large as ibv_create_qp has said. */
static void report(const struct goroce_qp_attr *r, const struct qp *q, struct ibv_qp_attr *a)
{
	memset(a, 0, offsetof(struct ibv_qp_attr, rate_limit));
	a->qp_state = r->state;
	a->cur_qp_state = r->state;
	a->path_mtu = mtu_of(r->path_mtu);
	a->qkey = r->qkey;
	a->rq_psn = r->rq_psn;
	a->sq_psn = r->sq_psn;
	a->dest_qp_num = r->dest_qpn;
	a->qp_access_flags = r->access;
	a->cap = q->cap;
	a->pkey_index = (uint16_t)r->pkey_index;
	a->en_sqd_async_notify = (uint8_t)r->sqd_notify;
	a->sq_draining = (uint8_t)r->draining;
	a->max_rd_atomic = (uint8_t)r->max_rd_atomic;
	a->max_dest_rd_atomic = (uint8_t)r->max_dest_rd_atomic;
	a->min_rnr_timer = (uint8_t)r->min_rnr_timer;
	a->port_num = (uint8_t)r->port;
	a->timeout = (uint8_t)r->timeout;
	a->retry_cnt = (uint8_t)r->retry_cnt;
	a->rnr_retry = (uint8_t)r->rnr_retry;
	ah_from_daemon(&r->ah, &a->ah_attr);
}

/* ibv_query_qp asks the daemon whatever the mask says, and notes the state: so a program that queries a QP which has
 * failed by itself finds it failed in later posts, too. */
EXPORT int ibv_query_qp(struct ibv_qp *v, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init)
{
	struct goroce_object o = {v->handle};
	struct goroce_qp_attr r;
	struct qp *q = qp_of(v);
	int err = dead(v->context, q->born); /* in a child the mutex of an inherited QP may stay locked */

	if (err)
		return failed(err);
	pthread_mutex_lock(&v->mutex);
	err = ask(v->context, GOROCE_QUERY_QP, &o, sizeof(o), &r, sizeof(r));
	if (!err && r.state > IBV_QPS_ERR)
		err = EPROTO;
	if (!err)
		set_state(v, r.state);
	pthread_mutex_unlock(&v->mutex);
	if (err)
		return err;
	report(&r, q, attr);
	if (attr_mask & IBV_QP_RATE_LIMIT)
		attr->rate_limit = r.rate_limit;
	*init = (struct ibv_qp_init_attr){
		v->qp_context, v->send_cq, v->recv_cq, v->srq, q->cap, v->qp_type, q->sig_all,
	};
	return 0;
}

/* The end of each packet, up to 8 bytes, is written last. No flag of this call stands for that: none is returned. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *v __attribute__((unused)), int op __attribute__((unused)),
				      uint32_t flags __attribute__((unused)))
{
	return 0;
}

/* Enhanced connection establishment: no vendor's options are known. */
EXPORT int ibv_query_ece(struct ibv_qp *v __attribute__((unused)), struct ibv_ece *ece __attribute__((unused)))
{
	return EOPNOTSUPP;
}

EXPORT int ibv_set_ece(struct ibv_qp *v __attribute__((unused)), struct ibv_ece *ece __attribute__((unused)))
{
	return EOPNOTSUPP;
}
