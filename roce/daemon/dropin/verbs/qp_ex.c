/*
 * ibv_wr_*: requests that are built one after another, right in the slots of the send ring, from wr_start to
 * wr_complete or wr_abort. The daemon sees none of them before.
 *
 * wr_start takes the lock of the send ring, and wr_complete or wr_abort, which the program must call, releases it.
 * All in between belongs to the thread that has called wr_start. Requests are counted in built; the producer's index
 * stays where it is. A builder that fails says so by wr_complete, and then none of the requests is posted
 * (ibv_wr_post(3)): the slots that were written are written again by the next post. After an error slot is NULL, and
 * builders and setters do nothing.
 *
 * A request begins with a builder (wr_send and its like), which fills in the fixed part of a slot from wr_id and
 * wr_flags of the QP; then setters name the payload and, for some types of QP, the destination.
 */
#include "lib.h"

#include <endian.h>

#define SELF(v) container_of(v, struct qp, ex)

/* wr_start cannot fail: what is wrong with the QP is told by wr_complete. It takes the lock in any case, even of a QP
 * that is the parent's, as wr_complete releases it. */
static void wr_start(struct ibv_qp_ex *v)
{
	struct qp *q = SELF(v);

	if (inherited(q->born)) /* wr_complete unlocks it; it may stay locked by a thread of the parent */
		pthread_mutex_init(&q->sq.lock, NULL);
	pthread_mutex_lock(&q->sq.lock);
	q->built = 0;
	q->slot = NULL;
	q->error = dead(v->qp_base.context, q->born);
	if (!q->error && qp_state(&v->qp_base) < IBV_QPS_RTS)
		q->error = EINVAL;
}

/* refuse makes wr_complete return err, unless it returns an earlier one. */
static void refuse(struct qp *q, int err)
{
	if (!q->error)
		q->error = err;
	q->slot = NULL;
}

/* wr_complete posts all requests, or none. Short payloads are copied only now: until here the
 * program may change them, and choose another one by a further setter. */
static int wr_complete(struct ibv_qp_ex *v)
{
	struct qp *q = SELF(v);
	int err = q->error;

	if (!err) {
		for (uint32_t i = 0; i < q->built; i++)
			short_built(q, ring_slot(&q->sq, q->sq.next + i));
		post_published(q, &q->sq, q->sq.next + q->built);
	}
	pthread_mutex_unlock(&q->sq.lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *v) { pthread_mutex_unlock(&SELF(v)->sq.lock); }

/* begin takes the next slot for a request: NULL if there is none. IBV_SEND_INLINE among the program's flags means
 * nothing here, as the setters of inline data set it. The slot is counted at once; if the request turns out to be
 * wrong, none of them is posted. */
static struct goroce_send_slot *begin(struct ibv_qp_ex *v, unsigned int opcode)
{
	const unsigned int flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	struct qp *q = SELF(v);

	q->slot = NULL;
	if (q->error)
		return NULL;
	if (!qp_takes(&q->v, opcode))
		refuse(q, EINVAL);
	else if (!ring_room(&q->sq, q->sq.next + q->built))
		refuse(q, ENOMEM);
	if (q->error)
		return NULL;
	q->slot = ring_slot(&q->sq, q->sq.next + q->built++);
	*q->slot = (struct goroce_send_slot){
		.id = v->wr_id, .opcode = (uint8_t)opcode, .flags = (uint8_t)(v->wr_flags & flags),
	};
	return q->slot;
}

/* begin_imm begins a request with immediate data, or with a key to revoke, which is in the same field. */
static void begin_imm(struct ibv_qp_ex *v, unsigned int opcode, uint32_t imm)
{
	struct goroce_send_slot *s = begin(v, opcode);

	if (s)
		s->imm = imm;
}

/* begin_remote begins a request that names memory of the peer. */
static struct goroce_send_slot *begin_remote(struct ibv_qp_ex *v, unsigned int opcode, uint32_t rkey, uint64_t addr)
{
	struct goroce_send_slot *s = begin(v, opcode);

	if (s) {
		s->rkey = rkey;
		s->remote_addr = addr;
	}
	return s;
}

static void wr_send(struct ibv_qp_ex *v) { begin(v, IBV_WR_SEND); }

static void wr_send_imm(struct ibv_qp_ex *v, uint32_t imm) { begin_imm(v, IBV_WR_SEND_WITH_IMM, be32toh(imm)); }

static void wr_send_inv(struct ibv_qp_ex *v, uint32_t rkey) { begin_imm(v, IBV_WR_SEND_WITH_INV, rkey); }

static void wr_local_inv(struct ibv_qp_ex *v, uint32_t rkey) { begin_imm(v, IBV_WR_LOCAL_INV, rkey); }

static void wr_rdma_read(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr)
{
	begin_remote(v, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr)
{
	begin_remote(v, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr, uint32_t imm)
{
	struct goroce_send_slot *s = begin_remote(v, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (s)
		s->imm = be32toh(imm);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct goroce_send_slot *s = begin_remote(v, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	if (s) {
		s->compare = compare;
		s->swap = swap;
	}
}

/* What FETCH & ADD adds is in swap: compare is of COMPARE & SWAP only. */
static void wr_atomic_fetch_add(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct goroce_send_slot *s = begin_remote(v, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);

	if (s)
		s->swap = add;
}

/* The 8 bytes of an ATOMIC WRITE are inline: the QP has the room, whatever was asked for. */
static void wr_atomic_write(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr, const void *value)
{
	struct goroce_send_slot *s = begin_remote(v, IBV_WR_ATOMIC_WRITE, rkey, addr);

	if (s) {
		s->flags |= IBV_SEND_INLINE;
		s->inline_len = sizeof(uint64_t);
		memcpy(s + 1, value, sizeof(uint64_t));
	}
}

/* wr_flush: type says whether the data must be visible or persistent, level whether the range or all of the region is
 * meant (IBTA A19.4.2). The length has 32 bits on the wire. */
static void wr_flush(struct ibv_qp_ex *v, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	struct goroce_send_slot *s = begin_remote(v, IBV_WR_FLUSH, rkey, addr);

	if (!s)
		return;
	if (length > UINT32_MAX)
		refuse(SELF(v), EINVAL);
	s->compare = length;
	s->swap = type | (uint64_t)level << 32;
}

static void wr_bind_mw(struct ibv_qp_ex *v, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b)
{
	struct goroce_send_slot *s = begin(v, IBV_WR_BIND_MW);
	int err = s ? post_bind(s, mw, rkey, b) : 0;

	if (err)
		refuse(SELF(v), err);
}

static void wr_send_tso(struct ibv_qp_ex *v, void *hdr __attribute__((unused)), uint16_t size __attribute__((unused)),
			uint16_t mss __attribute__((unused)))
{
	refuse(SELF(v), EOPNOTSUPP);
}

/* The setters that follow change the request that was begun last. They do nothing if there is none, so that a program
 * that does not look for errors before wr_complete writes nowhere. */
static void set_ud_addr(struct ibv_qp_ex *v, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct goroce_send_slot *s = SELF(v)->slot;

	if (!s)
		return;
	if (!ah || inherited(ah_of(ah)->born)) {
		refuse(SELF(v), ah ? ENODEV : EINVAL);
		return;
	}
	s->ah = ah_of(ah)->num;
	s->remote_qpn = qpn & 0xFFFFFF;
	s->remote_qkey = qkey;
}

static void set_xrc_srqn(struct ibv_qp_ex *v, uint32_t srqn)
{
	struct goroce_send_slot *s = SELF(v)->slot;

	if (s)
		s->remote_srq = srqn & 0xFFFFFF;
}

/* set_sge_list refuses more SGEs than the slot has room for; the list is not read then. */
static void set_sge_list(struct ibv_qp_ex *v, size_t n, const struct ibv_sge *list)
{
	struct qp *q = SELF(v);

	if (!q->slot)
		return;
	if (n > q->sq.max_sge) {
		refuse(q, EINVAL);
		return;
	}
	q->slot->num_sge = (uint16_t)n;
	memcpy(q->slot + 1, list, n * sizeof(*list));
}

static void set_sge(struct ibv_qp_ex *v, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge e = {addr, length, lkey};

	set_sge_list(v, 1, &e);
}

/* set_inline_data_list copies the data at once, so the program may use the memory again when it returns. */
static void set_inline_data_list(struct ibv_qp_ex *v, size_t n, const struct ibv_data_buf *list)
{
	struct qp *q = SELF(v);
	uint32_t len = 0;

	if (!q->slot)
		return;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > q->sq.max_inline - len) {
			refuse(q, EINVAL);
			return;
		}
		memcpy((char *)(q->slot + 1) + len, list[i].addr, list[i].length);
		len += (uint32_t)list[i].length;
	}
	q->slot->flags |= IBV_SEND_INLINE;
	q->slot->inline_len = len;
}

static void set_inline_data(struct ibv_qp_ex *v, void *addr, size_t length)
{
	struct ibv_data_buf b = {addr, length};

	set_inline_data_list(v, 1, &b);
}

/* qp_set_builders makes the functions of ibv_wr_* those of this file. All are set, whatever operations the program
 * has named: one that the type of QP has not is refused when it is begun. */
void qp_set_builders(struct qp *q)
{
	struct ibv_qp_ex *v = &q->ex;

	q->has_ex = true;
	v->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	v->wr_atomic_fetch_add = wr_atomic_fetch_add;
	v->wr_bind_mw = wr_bind_mw;
	v->wr_local_inv = wr_local_inv;
	v->wr_rdma_read = wr_rdma_read;
	v->wr_rdma_write = wr_rdma_write;
	v->wr_rdma_write_imm = wr_rdma_write_imm;
	v->wr_send = wr_send;
	v->wr_send_imm = wr_send_imm;
	v->wr_send_inv = wr_send_inv;
	v->wr_send_tso = wr_send_tso;
	v->wr_set_ud_addr = set_ud_addr;
	v->wr_set_xrc_srqn = set_xrc_srqn;
	v->wr_set_inline_data = set_inline_data;
	v->wr_set_inline_data_list = set_inline_data_list;
	v->wr_set_sge = set_sge;
	v->wr_set_sge_list = set_sge_list;
	v->wr_start = wr_start;
	v->wr_complete = wr_complete;
	v->wr_abort = wr_abort;
	v->wr_atomic_write = wr_atomic_write;
	v->wr_flush = wr_flush;
}

/* ibv_qp_to_qp_ex returns NULL for a QP that was made without operations, as rdma-core does: its functions are not
 * set. */
EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *v) { return qp_of(v)->has_ex ? &qp_of(v)->ex : NULL; }
