/* This process's end of a ring (go doc ./qp/ring). What the daemon can write is checked before use. */
#include "lib.h"

enum { RING_MAGIC = 0x474E4952, RING_VERSION = 1, MAX_INLINE = 1024 };

static uint32_t payload_offset(enum ring_kind kind)
{
	return kind == RING_SEND ? sizeof(struct goroce_send_slot) : sizeof(struct goroce_recv_slot);
}

/* Slots are at least so long. */
static uint32_t least_slot(const struct goroce_ring_header *h, enum ring_kind kind)
{
	uint32_t sges = h->max_sge * (uint32_t)sizeof(struct goroce_sge);

	if (kind == RING_CQ)
		return sizeof(struct goroce_cq_slot);
	return payload_offset(kind) + (sges > h->max_inline ? sges : h->max_inline);
}

static bool valid(const struct goroce_ring_header *h, uint64_t size, enum ring_kind kind)
{
	if (h->magic != RING_MAGIC || h->version != RING_VERSION || h->kind != kind)
		return false;
	if (h->entries & (h->entries - 1) || h->max_sge > MAX_SGE || h->max_inline > MAX_INLINE || h->slot_size % LINE)
		return false;
	return h->slot_size >= least_slot(h, kind) && h->entries <= (size - RING_SLOTS) / h->slot_size;
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
	r->limit = h.entries;
	r->next = atomic_load(ring_word(r, kind == RING_CQ ? RING_CONSUMER : RING_PRODUCER));
	r->seen = kind == RING_CQ ? r->next : atomic_load(ring_word(r, RING_CONSUMER));
	return 0;
}

/* ring_room reports whether the slot of index used may be written. A wrong consumer index counts as full. */
bool ring_room(struct ring *r, uint32_t used)
{
	if (!r->base)
		return false;
	if (used - r->seen < r->limit)
		return true;
	r->seen = atomic_load_explicit(ring_word(r, RING_CONSUMER), memory_order_acquire);
	return used - r->seen < r->limit;
}

/* ring_take attaches to the ring of a reply, in place of the one of *size bytes that the queue has. It closes fd. */
int ring_take(struct ring *r, size_t *size, const struct goroce_ring *made, int fd, enum ring_kind kind)
{
	void *map, *old = r->base;
	int err = shared_map(fd, made->size, &map);

	if (err)
		return err;
	err = ring_attach(r, map, made->size, kind);
	if (err) {
		shared_unmap(map, made->size);
		return err;
	}
	shared_unmap(old, *size);
	*size = made->size;
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
