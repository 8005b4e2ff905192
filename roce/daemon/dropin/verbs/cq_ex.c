/*
 * Extended completion queues: one completion after another, field by field, between start_poll and end_poll.
 *
 * The lock of the ring is held from start_poll to end_poll. In between, other threads wait that poll or resize the
 * CQ, and a thread that calls ibv_poll_cq itself waits for ever, as with rdma-core's providers. The daemon has the
 * slots back at end_poll, which moves the consumer's index over all of them at once.
 */
#include "lib.h"

#include <endian.h>

#define SELF(v) container_of(v, struct cq, ex)

/* load copies the next completion out of the ring: ENOENT if there is none, EIO if the daemon's index is wrong. */
static int load(struct cq *q)
{
	int ready = ring_ready(&q->ring);

	if (ready <= 0)
		return ready ? EIO : ENOENT;
	memcpy(&q->current, ring_slot(&q->ring, q->ring.next), sizeof(q->current));
	q->ex.status = q->current.status;
	q->ex.wr_id = q->current.id;
	q->ring.next++;
	if (q->current.status) /* asks the daemon with the lock held, as ibv_resize_cq does */
		why_failed(q->v.context, q->current.qpn, q->current.vendor_err);
	return 0;
}

/* start_poll keeps the lock until end_poll, if it finds a completion. Otherwise end_poll must not be called
 * (ibv_create_cq_ex(3)). Errors are returned, not set. */
static int start_poll(struct ibv_cq_ex *v, struct ibv_poll_cq_attr *attr)
{
	struct cq *q = SELF(v);
	int err = dead(v->context, q->born);

	if (attr && attr->comp_mask)
		return EINVAL;
	if (err)
		return err;
	pthread_mutex_lock(&q->ring.lock);
	err = load(q);
	if (err)
		pthread_mutex_unlock(&q->ring.lock);
	give_way(q, !err);
	if (err == ENOENT)
		cq_tell_overrun(q);
	return err;
}

/* next_poll keeps the lock also when it finds nothing: end_poll follows in any case. */
static int next_poll(struct ibv_cq_ex *v) { return load(SELF(v)); }

static void end_poll(struct ibv_cq_ex *v)
{
	struct ring *r = &SELF(v)->ring;

	atomic_store_explicit(ring_word(r, RING_CONSUMER), r->next, memory_order_release);
	pthread_mutex_unlock(&r->lock);
}

static int read_opcode(struct ibv_cq_ex *v) { return SELF(v)->current.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *v) { return SELF(v)->current.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *v) { return SELF(v)->current.byte_len; }
static uint32_t read_qp_num(struct ibv_cq_ex *v) { return SELF(v)->current.qpn; }
static uint32_t read_src_qp(struct ibv_cq_ex *v) { return SELF(v)->current.src_qp; }
static unsigned int read_wc_flags(struct ibv_cq_ex *v) { return SELF(v)->current.flags; }
static uint8_t read_sl(struct ibv_cq_ex *v) { return SELF(v)->current.sl; }
static uint32_t read_slid(struct ibv_cq_ex *v __attribute__((unused))) { return 0; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *v __attribute__((unused))) { return 0; }
static uint64_t read_completion_ts(struct ibv_cq_ex *v) { return (uint64_t)SELF(v)->current.timestamp; }

/* read_imm_data is also how programs read the key that was invalidated. */
static uint32_t read_imm_data(struct ibv_cq_ex *v)
{
	const struct goroce_cq_slot *s = &SELF(v)->current;

	return s->flags & IBV_WC_WITH_INV ? s->invalidated_key : htobe32(s->imm);
}

static uint64_t read_wallclock(struct ibv_cq_ex *v) { return clock_wallclock(v->context, SELF(v)->current.timestamp); }

/* cq_set_reads sets all functions that there are, whichever fields the program has asked for. The others stay NULL, as
 * cq_create_ex refuses their fields. */
void cq_set_reads(struct ibv_cq_ex *v)
{
	v->start_poll = start_poll;
	v->next_poll = next_poll;
	v->end_poll = end_poll;
	v->read_opcode = read_opcode;
	v->read_vendor_err = read_vendor_err;
	v->read_byte_len = read_byte_len;
	v->read_imm_data = read_imm_data;
	v->read_qp_num = read_qp_num;
	v->read_src_qp = read_src_qp;
	v->read_wc_flags = read_wc_flags;
	v->read_slid = read_slid;
	v->read_sl = read_sl;
	v->read_dlid_path_bits = read_dlid_path_bits;
	v->read_completion_ts = read_completion_ts;
	v->read_completion_wallclock_ns = read_wallclock;
}
