/*
 * Short payloads travel in the work request, although the program did not ask for that (IBV_SEND_INLINE): the daemon
 * needs a system call to read memory of this process. A payload is copied only if the daemon could send it. All others
 * go to the daemon as SGEs, so that the completion is the same. A program that posts registered memory which it
 * has unmapped gets SIGSEGV.
 */
#include "lib.h"

#include <sys/uio.h>

#define OP(name) (1u << IBV_WR_##name)

/* The requests whose payload goes to the peer as it is. */
static const uint32_t pushes = OP(SEND) | OP(SEND_WITH_IMM) | OP(SEND_WITH_INV) | OP(RDMA_WRITE) |
	OP(RDMA_WRITE_WITH_IMM);

/* may reports whether the payload may be read now. With a fence it may be the result of a READ before. */
static bool may(const struct goroce_send_slot *s)
{
	uint8_t opcode = s->opcode;

	return opcode < 32 && pushes >> opcode & 1 && !(s->flags & (IBV_SEND_FENCE | IBV_SEND_INLINE));
}

/* find looks up the memory of an SGE: NULL if the daemon has to decide about it. */
static const char *find(struct qp *q, const struct ibv_sge *e)
{
	struct regions *all = &context_of(q->v.context)->regions;
	struct region *r = &q->regions[(e->lkey >> 8) % (sizeof(q->regions) / sizeof(*q->regions))];
	uint64_t offset;

	if (r->lkey != e->lkey || r->generation != atomic_load_explicit(&all->generation, memory_order_acquire))
		regions_look_up(all, e->lkey, r);
	offset = e->addr - r->iova;
	if (r->pd != q->pd || e->addr < r->iova || offset > r->length || e->length > r->length - offset)
		return NULL;
	return r->addr + offset;
}

/* short_copy copies the payload behind the fixed part of a slot, and reports whether it did. Pieces of length 0 count
 * for nothing, whatever their key (IBTA 10.8.3.2). */
bool short_copy(struct qp *q, struct goroce_send_slot *s, const struct ibv_sge *list, uint32_t n)
{
	struct iovec from[MAX_SGE];
	char *to = (char *)(s + 1);
	uint32_t len = 0, pieces = 0;

	if (!may(s))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const char *at;
		if (!list[i].length)
			continue;
		if (list[i].length > q->sq.max_inline - len || !(at = find(q, &list[i])))
			return false;
		from[pieces++] = (struct iovec){(void *)at, list[i].length};
		len += list[i].length;
	}
	if (!len)
		return false;
	for (uint32_t i = 0; i < pieces; i++) {
		memcpy(to, from[i].iov_base, from[i].iov_len);
		to += from[i].iov_len;
	}
	s->flags |= IBV_SEND_INLINE;
	s->inline_len = len;
	s->num_sge = 0;
	return true;
}

/* short_built is short_copy for a request whose SGEs are in the slot. They are copied first: the daemon can write there. */
void short_built(struct qp *q, struct goroce_send_slot *s)
{
	struct ibv_sge list[MAX_SGE];
	uint32_t n = s->num_sge;

	if (!n || n > q->sq.max_sge || !may(s))
		return;
	memcpy(list, s + 1, n * sizeof(*list));
	short_copy(q, s, list, n);
}
