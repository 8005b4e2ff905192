/*
 * Posting work requests, in memory shared with the daemon: no system call but to wake a daemon that sleeps.
 *
 * A request is written into the next free slot of the ring, which the daemon does not look at until ring_publish
 * moves the producer's index past it. Then the daemon copies the slot once and checks the copy, so nothing here
 * protects the daemon. What is checked here is what programs expect to fail at once, with the errno that rdma_rxe
 * gives, and what would make this process read or write where it must not. All else completes with an error.
 *
 * A list of requests is posted up to the first that is wrong: *bad_wr names that one, and those before it are on
 * their way. Programs may post in several threads; the ring's lock is held from the first slot to the doorbell.
 */
#include "lib.h"

#include <endian.h>

#define OP(name) (1u << IBV_WR_##name)

/* Bits of opcodes, by what services take (IBTA 10.8.3, table 95; A19 for FLUSH and ATOMIC WRITE). */
enum {
	DATAGRAM = OP(SEND) | OP(SEND_WITH_IMM),
	CONNECTED = DATAGRAM | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(BIND_MW) | OP(LOCAL_INV),
	RELIABLE = CONNECTED | OP(SEND_WITH_INV) | OP(RDMA_READ) | OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD) |
		OP(FLUSH) | OP(ATOMIC_WRITE),
	RDMA = OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(RDMA_READ) | OP(ATOMIC_WRITE), /* have wr.rdma */
};

/* services has the opcodes that each type of QP takes. An XRC target sends nothing. */
static const uint32_t services[] = {
	[IBV_QPT_RC] = RELIABLE,
	[IBV_QPT_UC] = CONNECTED,
	[IBV_QPT_UD] = DATAGRAM,
	[IBV_QPT_XRC_SEND] = RELIABLE,
	[IBV_QPT_XRC_RECV] = 0,
};

/* qp_takes reports whether a type of QP has an opcode. Programs may pass any number, so it is compared before the
 * shift. */
bool qp_takes(const struct ibv_qp *v, unsigned int opcode) { return opcode < 32 && services[v->qp_type] >> opcode & 1; }

/* post_published makes requests visible, and rings the QP's doorbell if the daemon waits for that. The caller holds
 * the lock of the ring. It is called for receives, too, though the daemon looks at their ring when a message arrives,
 * and so asks for no doorbell as a rule. */
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

/* put_inline copies the payload behind the fixed part of a slot. The program may use the memory again as soon
 * as the post returns, and the keys of the SGEs are not looked at: inline payload need not be registered
 * (ibv_post_send(3)). */
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

/* put_payload puts the payload, or where it is, into a slot. The number of SGEs is checked first, since the list is
 * read for inline payload as well. It must not be more than the slot has room for. */
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

/* post_bind fills in a request to bind a window. It borrows fields of other requests, as package qp/ring says: imm is
 * the L_Key of the region, remote_addr the beginning of the window, compare its length and swap its rights. With a
 * length of 0 a window of type 1 only loses its binding, and no region is needed. LOCAL_WRITE is a right of regions
 * only: the device refuses a binding that has it, but programs set it. */
int post_bind(struct goroce_send_slot *s, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b)
{
	if (!mw || (!b->mr && b->length))
		return EINVAL;
	if (inherited(mw_of(mw)->born) || (b->mr && inherited(mr_of(b->mr)->born)))
		return ENODEV;
	s->num_sge = 0;
	s->imm = b->mr ? b->mr->lkey : 0;
	s->remote_addr = b->addr;
	/* The lower 8 bits count, as for rdma_rxe (rxe_do_bind_mw) and NICs: programs may leave the others out. */
	s->rkey = (mw->rkey & ~0xFFu) | (rkey & 0xFF);
	s->compare = b->length;
	s->swap = mr_access(b->mw_access_flags) & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE;
	return 0;
}

/*
 * put_rest fills in what a request has beside its payload. Fields that it has not are zero. Members of the unions of
 * ibv_send_wr are read only if the opcode, or the type of the QP, has them: the rest may be anything. Numbers of QPs
 * and SRQs have 24 bits, and the upper 8 of the program's are ignored. A UD QP that is given the address handle of a
 * parent refuses it here, since the daemon may have given the same number to a handle of this process.
 */
static int put_rest(const struct qp *q, struct goroce_send_slot *s, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		return post_bind(s, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
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

/* push_send writes a request into the slot of index next. The whole fixed part is set, so that nothing of an older
 * request stays. Other flags, such as IBV_SEND_IP_CSUM, are dropped: the daemon would end the request for them. */
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

/*
 * post_send is ibv_post_send. From RTS on it takes requests in every state: in SQD they wait, and in SQE and ERR the
 * daemon flushes them (IBTA 10.3.1). The state is the one that this process was told last, as the daemon changes it
 * without a word when a QP fails. It is read without the QP's mutex (qp_state). An object of a parent is refused
 * before the lock is taken, which may stay locked in the child for ever.
 */
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

/* ring_push_recv writes a receive into the slot of index next, for a QP or an SRQ. ENOMEM if the ring is full, as
 * verbs have it for a queue without room; a queue without entries is always full. The lock is held. */
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

/* post_recv is ibv_post_recv. Receives are taken from INIT on, so that they are there when the peer's first message
 * comes. A QP with an SRQ has no receive queue of its own. */
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
