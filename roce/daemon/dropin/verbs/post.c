/* Posting work requests, in memory shared with the daemon: no system call but to wake a daemon that sleeps. */
#include "lib.h"

#include <endian.h>

#define OP(name) (1u << IBV_WR_##name)

enum {
	DATAGRAM = OP(SEND) | OP(SEND_WITH_IMM),
	CONNECTED = DATAGRAM | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(BIND_MW) | OP(LOCAL_INV),
	RELIABLE = CONNECTED | OP(SEND_WITH_INV) | OP(RDMA_READ) | OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD) |
		OP(FLUSH) | OP(ATOMIC_WRITE),
	RDMA = OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(RDMA_READ) | OP(ATOMIC_WRITE), /* have wr.rdma */
};

static const uint32_t services[] = {
	[IBV_QPT_RC] = RELIABLE,
	[IBV_QPT_UC] = CONNECTED,
	[IBV_QPT_UD] = DATAGRAM,
	[IBV_QPT_XRC_SEND] = RELIABLE,
	[IBV_QPT_XRC_RECV] = 0,
};

bool qp_takes(const struct ibv_qp *v, unsigned int opcode) { return opcode < 32 && services[v->qp_type] >> opcode & 1; }

/* post_published makes requests visible, and rings the QP's doorbell if the daemon waits for that. */
void post_published(struct qp *q, struct ring *r, uint32_t next)
{
	if (ring_publish(r, next))
		doorbell_ring(&context_of(q->v.context)->doorbells, q->shard, q->doorbell);
}

/* put_sges copies an SGL behind the fixed part of a slot. */
static void put_sges(void *to, const struct ibv_sge *from, int n)
{
	memcpy(to, from, (size_t)n * sizeof(*from));
}

_Static_assert(sizeof(struct ibv_sge) == sizeof(struct goroce_sge), "SGEs are copied as they are");

/* put_inline copies the payload behind the fixed part of a slot. */
static int put_inline(struct goroce_send_slot *s, const struct ibv_send_wr *wr, uint32_t room)
{
	char *to = (char *)(s + 1);
	uint32_t len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *e = &wr->sg_list[i];
		if (e->length > room - len)
			return EINVAL;
		memcpy(to + len, (const void *)(uintptr_t)e->addr, e->length);
		len += e->length;
	}
	s->inline_len = len;
	return 0;
}

static int put_payload(struct qp *q, struct goroce_send_slot *s, const struct ibv_send_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->sq.max_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE)
		return put_inline(s, wr, q->sq.max_inline);
	if (short_copy(q, s, wr->sg_list, (uint32_t)wr->num_sge))
		return 0;
	s->num_sge = (uint16_t)wr->num_sge;
	put_sges(s + 1, wr->sg_list, wr->num_sge);
	return 0;
}

static int put_bind(struct goroce_send_slot *s, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;

	if (!wr->bind_mw.mw || (!b->mr && b->length))
		return EINVAL;
	if (inherited(mw_of(wr->bind_mw.mw)->born) || (b->mr && inherited(mr_of(b->mr)->born)))
		return ENODEV;
	s->num_sge = 0;
	s->imm = b->mr ? b->mr->lkey : 0;
	s->remote_addr = b->addr;
	/* The lower 8 bits count, as for rdma_rxe (rxe_do_bind_mw) and NICs: programs may leave the others out. */
	s->rkey = (wr->bind_mw.mw->rkey & ~0xFFu) | (wr->bind_mw.rkey & 0xFF);
	s->compare = b->length;
	s->swap = mr_access(b->mw_access_flags) & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE;
	return 0;
}

/* put_rest fills in what a request has beside its payload. Fields that it has not are zero. */
static int put_rest(const struct qp *q, struct goroce_send_slot *s, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		return put_bind(s, wr);
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		s->imm = wr->invalidate_rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		s->remote_addr = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->compare = wr->wr.atomic.compare_add;
		s->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		s->remote_addr = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->swap = wr->wr.atomic.compare_add;
		break;
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		s->imm = be32toh(wr->imm_data);
		break;
	}
	if (1u << wr->opcode & RDMA) {
		s->remote_addr = wr->wr.rdma.remote_addr;
		s->rkey = wr->wr.rdma.rkey;
	}
	if (q->v.qp_type == IBV_QPT_XRC_SEND)
		s->remote_srq = wr->qp_type.xrc.remote_srqn & 0xFFFFFF;
	if (q->v.qp_type != IBV_QPT_UD)
		return 0;
	if (!wr->wr.ud.ah)
		return EINVAL;
	if (inherited(ah_of(wr->wr.ud.ah)->born))
		return ENODEV;
	s->ah = ah_of(wr->wr.ud.ah)->num;
	s->remote_qpn = wr->wr.ud.remote_qpn & 0xFFFFFF;
	s->remote_qkey = wr->wr.ud.remote_qkey;
	return 0;
}

static int push_send(struct qp *q, uint32_t next, const struct ibv_send_wr *wr)
{
	const unsigned int flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
	struct goroce_send_slot *s;
	int err;

	if (!qp_takes(&q->v, wr->opcode))
		return EINVAL;
	if (!ring_room(&q->sq, next))
		return ENOMEM;
	s = ring_slot(&q->sq, next);
	*s = (struct goroce_send_slot){
		.id = wr->wr_id, .opcode = (uint8_t)wr->opcode, .flags = (uint8_t)(wr->send_flags & flags),
	};
	err = put_payload(q, s, wr);
	return err ? err : put_rest(q, s, wr);
}

int post_send(struct ibv_qp *v, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct qp *q = qp_of(v);
	int err = dead(v->context, q->born);
	uint32_t next;

	if (!bad_wr || !wr) /* as rdma_rxe */
		return EINVAL;
	if (!err && qp_state(v) < IBV_QPS_RTS)
		err = EINVAL;
	if (err) {
		*bad_wr = wr;
		return err;
	}
	pthread_mutex_lock(&q->sq.lock);
	for (next = q->sq.next; wr; wr = wr->next, next++) {
		err = push_send(q, next, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	post_published(q, &q->sq, next);
	pthread_mutex_unlock(&q->sq.lock);
	return err;
}

/* ring_push_recv writes a receive into the slot of index next, for a QP or an SRQ. */
int ring_push_recv(struct ring *r, uint32_t next, const struct ibv_recv_wr *wr)
{
	struct goroce_recv_slot *s;

	if (!ring_room(r, next))
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > r->max_sge)
		return EINVAL;
	s = ring_slot(r, next);
	*s = (struct goroce_recv_slot){.id = wr->wr_id, .num_sge = (uint16_t)wr->num_sge};
	put_sges(s + 1, wr->sg_list, wr->num_sge);
	return 0;
}

int post_recv(struct ibv_qp *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct qp *q = qp_of(v);
	int err = dead(v->context, q->born);
	uint32_t next;

	if (!bad_wr || !wr) /* as rdma_rxe */
		return EINVAL;
	if (!err && (qp_state(v) == IBV_QPS_RESET || v->srq))
		err = EINVAL;
	if (err) {
		*bad_wr = wr;
		return err;
	}
	pthread_mutex_lock(&q->rq.lock);
	for (next = q->rq.next; wr; wr = wr->next, next++) {
		err = ring_push_recv(&q->rq, next, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	post_published(q, &q->rq, next);
	pthread_mutex_unlock(&q->rq.lock);
	return err;
}
