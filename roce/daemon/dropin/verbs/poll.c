/*
 * Taking completions, and asking for an event of the next. A completion ring lies in memory shared with the daemon,
 * which writes completions there; to poll takes no system call, unless the thread gives way because there are none
 * (yield.c). All of it is under the ring's lock: programs may poll a CQ in several threads, and ibv_resize_cq
 * replaces the ring.
 */
#include "lib.h"

#include <endian.h>
#include <stdio.h>

/* Values of the wake word of a completion ring. */
enum { ARM_NONE = 0, ARM_SOLICITED = 1, ARM_ANY = 2 };

/* convert fills in all fields of a completion, as programs take the whole struct. Of one with an error only wr_id,
 * status, qp_num and vendor_err mean anything (ibv_poll_cq(3)). RoCE has no LIDs, and the port has one P_Key. */
static void convert(const struct goroce_cq_slot *s, struct ibv_wc *wc)
{
	wc->wr_id = s->id;
	wc->status = s->status;
	wc->opcode = s->opcode;
	wc->vendor_err = s->vendor_err;
	wc->byte_len = s->byte_len;
	if (s->flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = s->invalidated_key;
	else
		wc->imm_data = htobe32(s->imm); /* a number in the ring, network byte order for programs */
	wc->qp_num = s->qpn;
	wc->src_qp = s->src_qp;
	wc->wc_flags = s->flags;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = s->sl;
	wc->dlid_path_bits = 0;
}

/* take moves up to n completions to wc. It returns how many, or -1 if the ring is corrupt: not before those are taken
 * that were there already. The daemon gets the slots back by one store for all of them, after the last was copied. */
static int take(struct ring *r, int n, struct ibv_wc *wc)
{
	int got = 0, ready = 0;

	while (got < n && (ready = ring_ready(r)) > 0) {
		struct goroce_cq_slot s;
		memcpy(&s, ring_slot(r, r->next), sizeof(s));
		convert(&s, &wc[got++]);
		r->next++;
	}
	if (got)
		atomic_store_explicit(ring_word(r, RING_CONSUMER), r->next, memory_order_release);
	return got ? got : ready;
}

/* cq_tell_overrun says once that a completion has found no room: few programs read asynchronous events, and one that
 * waits for the lost completion only hangs. It is called when a poll has found nothing, as such a program goes on to
 * poll; polls that find something do not pay for it. */
void cq_tell_overrun(struct cq *q)
{
	if (!q->ring.base || !atomic_load_explicit(ring_word(&q->ring, RING_OVERRUN), memory_order_relaxed) ||
			atomic_exchange(&q->told, true))
		return;
	fprintf(stderr,
		"goroce: a completion queue of %d entries was full: a completion is lost, and the QPs that use the queue "
		"stop (IBV_EVENT_CQ_ERR). It needs room for all requests that may complete before the program polls.\n",
		q->v.cqe);
}

/* cq_poll is ibv_poll_cq: the number of completions, or -1 with errno. To give way, and to ask the daemon why a request
 * has failed, may take long; both come after the lock is released. */
int cq_poll(struct ibv_cq *v, int n, struct ibv_wc *wc)
{
	struct cq *q = cq_of(v);
	int got, why = dead(v->context, q->born);

	if (why) {
		errno = why;
		return -1;
	}
	pthread_mutex_lock(&q->ring.lock);
	got = take(&q->ring, n, wc);
	pthread_mutex_unlock(&q->ring.lock);
	give_way(q, got != 0);
	for (int i = 0; i < got; i++) {
		if (wc[i].status)
			why_failed(v->context, wc[i].qp_num, wc[i].vendor_err);
	}
	if (!got)
		cq_tell_overrun(q);
	if (got < 0)
		errno = EIO;
	return got;
}

/*
 * cq_forget removes the completions of a QP that was reset before the program has polled them. Those of other QPs
 * move towards the newest slot: the slots from the consumer's to the producer's index are the program's alone.
 *
 * It is called after the daemon has answered the reset, when no further completion of the QP can come. Programs count
 * on it as NICs do it (mlx5_cq_clean in rdma-core): a QP that is connected again would else seem to complete requests
 * that were never posted to it.
 */
void cq_forget(struct ibv_cq *v, uint32_t qpn)
{
	struct ring *r = &cq_of(v)->ring;
	uint32_t to, from;

	pthread_mutex_lock(&r->lock);
	if (ring_refresh(r)) {
		for (to = from = r->seen; from != r->next;) {
			const struct goroce_cq_slot *s = ring_slot(r, --from);
			if (s->qpn != qpn && --to != from)
				memcpy(ring_slot(r, to), s, sizeof(*s));
		}
		r->next = to;
		atomic_store_explicit(ring_word(r, RING_CONSUMER), to, memory_order_release);
	}
	pthread_mutex_unlock(&r->lock);
}

/*
 * A queue that is armed for any completion stays so when it is armed for solicited ones (IBTA 11.4.2.2). The fence is
 * the program's half of the handshake: the daemon stores the producer's index and then looks at this word, the
 * program arms and then polls once more, as in the example of ibv_get_cq_event(3). So one of them sees what the other
 * has done, and no completion is left without an event.
 */
int cq_notify(struct ibv_cq *v, int solicited_only)
{
	struct cq *q = cq_of(v);
	uint32_t none = ARM_NONE;
	int why = dead(v->context, q->born);

	if (why)
		return why;
	pthread_mutex_lock(&q->ring.lock);
	if (solicited_only)
		atomic_compare_exchange_strong(ring_word(&q->ring, RING_WAKE), &none, ARM_SOLICITED);
	else
		atomic_exchange(ring_word(&q->ring, RING_WAKE), ARM_ANY);
	atomic_thread_fence(memory_order_seq_cst);
	pthread_mutex_unlock(&q->ring.lock);
	return 0;
}
