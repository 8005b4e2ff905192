/*
 * This process's end of a ring (go doc ./qp/ring, which has the layout and the order of every load and store). It is
 * the producer of send and receive rings, and the consumer of completion rings. The daemon is at the other end at the
 * same time, in memory that both can write at any moment. So the geometry is copied once, when the ring is attached,
 * and what the daemon can write later is checked before use: a daemon that writes nonsense must not make this process
 * read or write outside of the ring.
 *
 * Nothing here locks. Callers hold the ring's lock, as programs may post and poll in several threads.
 */
#include "lib.h"

enum { RING_MAGIC = 0x474E4952, RING_VERSION = 1, MAX_INLINE = 1024 };

/* payload_offset returns where SGEs, or inline bytes, begin in a slot. */
static uint32_t payload_offset(enum ring_kind kind)
{
	return kind == RING_SEND ? sizeof(struct goroce_send_slot) : sizeof(struct goroce_recv_slot);
}

/* least_slot returns how long slots are at least. SGEs and inline bytes of a request share the same place, since a
 * request has one or the other. */
static uint32_t least_slot(enum ring_kind kind, uint32_t max_sge, uint32_t max_inline)
{
	uint32_t sges = max_sge * (uint32_t)sizeof(struct goroce_sge);

	if (kind == RING_CQ)
		return sizeof(struct goroce_cq_slot);
	return payload_offset(kind) + (sges > max_inline ? sges : max_inline);
}

/* ring_size returns the bytes of a ring, 0 for one without entries: the daemon rounds entries up to a power of two, and
 * slots to whole lines. The memfd is made and mapped before the request that asks for the ring, so its size must be
 * known then. A ring has room for an SGE though the program asks for none: the daemon formats it so. */
uint64_t ring_size(enum ring_kind kind, uint32_t entries, uint32_t max_sge, uint32_t max_inline)
{
	uint64_t slot = least_slot(kind, max_sge ? max_sge : 1, max_inline), rounded = 1;

	while (rounded < entries)
		rounded *= 2;
	return entries ? RING_SLOTS + rounded * ((slot + LINE - 1) / LINE * LINE) : 0;
}

/* valid reports whether a header is of a ring that lies within size bytes. ring_slot relies on all of it: entries is a
 * power of two, and the last slot ends within the mapping. */
static bool valid(const struct goroce_ring_header *h, uint64_t size, enum ring_kind kind)
{
	if (h->magic != RING_MAGIC || h->version != RING_VERSION || h->kind != kind)
		return false;
	if (h->entries & (h->entries - 1) || h->max_sge > MAX_SGE || h->max_inline > MAX_INLINE || h->slot_size % LINE)
		return false;
	return h->slot_size >= least_slot(kind, h->max_sge, h->max_inline) && h->entries <= (size - RING_SLOTS) / h->slot_size;
}

void ring_init(struct ring *r)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
}

void ring_destroy(struct ring *r) { pthread_mutex_destroy(&r->lock); }

/* ring_attach begins to use a ring in size bytes at base: EPROTO if it is not such a ring. The lock is held, or nobody
 * else has the ring yet. A ring may hold entries already, as when a queue is resized and the daemon has moved them, so
 * this end goes on at the indices in the buffer. */
int ring_attach(struct ring *r, void *base, uint64_t size, enum ring_kind kind)
{
	struct goroce_ring_header h;

	if (size < RING_SLOTS)
		return EPROTO;
	memcpy(&h, base, sizeof(h)); /* checked and used as a copy: the daemon can still change the original */
	if (!valid(&h, size, kind))
		return EPROTO;
	r->base = base;
	r->entries = h.entries;
	r->slot_size = h.slot_size;
	r->max_sge = h.max_sge;
	r->max_inline = h.max_inline;
	r->next = atomic_load(ring_word(r, kind == RING_CQ ? RING_CONSUMER : RING_PRODUCER));
	r->seen = kind == RING_CQ ? r->next : atomic_load(ring_word(r, RING_CONSUMER));
	return 0;
}

/*
 * ring_room reports whether the slot of index used may be written. A wrong consumer index counts as full. The
 * daemon's index is read only if the ring seems full by the last value of it: its cache line is the daemon's, and a
 * post need not fetch it. The load acquires, so that what is written to a slot from here on comes after the daemon
 * has read the slot.
 */
bool ring_room(struct ring *r, uint32_t used)
{
	if (!r->base)
		return false;
	if (used - r->seen < r->entries)
		return true;
	r->seen = atomic_load_explicit(ring_word(r, RING_CONSUMER), memory_order_acquire);
	return used - r->seen < r->entries;
}

/* ring_take attaches to a new ring, of which the daemon uses size bytes, in place of the one that the queue has. The
 * old memory is unmapped only if the new ring is valid; otherwise the new one is, and the queue keeps what it has. */
int ring_take(struct ring *r, struct shared *has, struct shared *made, uint64_t size, enum ring_kind kind)
{
	int err = ring_attach(r, made->at, size, kind);

	if (err) {
		shared_free(made);
		return err;
	}
	shared_free(has);
	*has = *made;
	return 0;
}

/*
 * ring_publish makes the slots before next visible, and reports whether the doorbell must be rung. The store releases
 * the slots. The full fence keeps the load of the wake word behind it: the daemon sets that word, and then looks at
 * the index once more before it relies on the doorbell. Without the fence both could miss what the other has written,
 * and the request would lie there until the next one. The exchange lets only one of several posts ring.
 */
bool ring_publish(struct ring *r, uint32_t next)
{
	if (next == r->next)
		return false;
	r->next = next;
	atomic_store_explicit(ring_word(r, RING_PRODUCER), next, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(ring_word(r, RING_WAKE), memory_order_relaxed))
		return false;
	return atomic_exchange(ring_word(r, RING_WAKE), 0);
}

/* ring_refresh reads how far slots can be read. It returns false, and leaves none, if the daemon's index is wrong. The
 * load acquires what the daemon has written to the slots before. */
bool ring_refresh(struct ring *r)
{
	r->seen = atomic_load_explicit(ring_word(r, RING_PRODUCER), memory_order_acquire);
	if (r->seen - r->next <= r->entries)
		return true;
	r->seen = r->next;
	return false;
}

/* ring_ready returns 1 if a slot can be read, 0 if none can, and -1 if the daemon's index is wrong. */
int ring_ready(struct ring *r)
{
	if (r->next == r->seen && !ring_refresh(r))
		return -1;
	return r->next != r->seen;
}
