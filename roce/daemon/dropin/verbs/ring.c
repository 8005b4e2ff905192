/* This process's end of a ring (go doc ./qp/ring). What the daemon can write is checked before use. */
#include "lib.h"

enum { RING_MAGIC = 0x474E4952, RING_VERSION = 1, MAX_INLINE = 1024 };

static uint32_t payload_offset(enum ring_kind kind)
{
	return kind == RING_SEND ? sizeof(struct goroce_send_slot) : sizeof(struct goroce_recv_slot);
}

/* least_slot returns how long slots are at least. */
static uint32_t least_slot(enum ring_kind kind, uint32_t max_sge, uint32_t max_inline)
{
	uint32_t sges = max_sge * (uint32_t)sizeof(struct goroce_sge);

	if (kind == RING_CQ)
		return sizeof(struct goroce_cq_slot);
	return payload_offset(kind) + (sges > max_inline ? sges : max_inline);
}

/* ring_size returns the bytes of a ring, 0 for one without entries: the daemon rounds entries up to a power of two, and
 * slots to whole lines. */
uint64_t ring_size(enum ring_kind kind, uint32_t entries, uint32_t max_sge, uint32_t max_inline)
{
	uint64_t slot = least_slot(kind, max_sge ? max_sge : 1, max_inline), rounded = 1;

	while (rounded < entries)
		rounded *= 2;
	return entries ? RING_SLOTS + rounded * ((slot + LINE - 1) / LINE * LINE) : 0;
}

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

/* ring_attach begins to use a ring in size bytes at base. The lock is held, or nobody else has the ring yet. */
int ring_attach(struct ring *r, void *base, uint64_t size, enum ring_kind kind)
{
	struct goroce_ring_header h;

	if (size < RING_SLOTS)
		return EPROTO;
	memcpy(&h, base, sizeof(h));
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

/* ring_room reports whether the slot of index used may be written. A wrong consumer index counts as full. */
bool ring_room(struct ring *r, uint32_t used)
{
	if (!r->base)
		return false;
	if (used - r->seen < r->entries)
		return true;
	r->seen = atomic_load_explicit(ring_word(r, RING_CONSUMER), memory_order_acquire);
	return used - r->seen < r->entries;
}

/* ring_take attaches to a new ring, of which the daemon uses size bytes, in place of the one that the queue has. */
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

/* ring_publish makes the slots before next visible, and reports whether the doorbell must be rung. */
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

/* ring_refresh reads how far slots can be read. It returns false, and leaves none, if the daemon's index is wrong. */
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
