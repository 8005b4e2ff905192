/*
 * Doorbells: a bit for each QP, in memory shared with the daemon (docs/abi.md, "Doorbells"). Each shard of the
 * daemon's device, a loop with its share of the QPs, has doorbells of its own; they lie one behind the other. A
 * summary has a bit for each word of doorbells, so that the shard looks only at words in which a bit may be set. The
 * wake word is not 0 while the shard sleeps. Only then a ring takes a system call, which writes to the shard's
 * eventfd.
 */
#include "lib.h"

#include <unistd.h>

/* Offsets in the memory of a shard, how many doorbells a word of the summary stands for, and how many there may be. */
enum { BELLS_MAGIC = 0x4C4C4542, BELLS_WAKE = 64, BELLS_SUMMARY = 128, BELLS_A_WORD = 4096, MAX_BELLS = 1 << 16 };

static uint32_t summary_words(uint32_t bells) { return (bells + BELLS_A_WORD - 1) / BELLS_A_WORD; }

static size_t summary_size(uint32_t bells) { return (summary_words(bells) + 7) / 8 * LINE; }

/*
 * formatted reports whether the daemon has made doorbells of the memory. Where they begin depends on their number, so
 * both sides must have the same.
 */
static bool formatted(const struct doorbells *d)
{
	for (uint32_t i = 0; i < d->shards; i++) {
		const struct goroce_doorbells_header *h = (void *)(d->pages.at + i * d->size);
		if (h->magic != BELLS_MAGIC || h->doorbells != summary_words(d->count) * BELLS_A_WORD)
			return false;
	}
	return true;
}

/*
 * doorbells_open makes the doorbells of all shards, and shares them with the daemon. The reply brings an eventfd for
 * each shard, which is this process's from then on. EPROTO: the daemon's numbers are none that the protocol allows.
 */
int doorbells_open(struct context *c, const struct goroce_open_reply *r)
{
	struct doorbells *d = &c->doorbells;
	struct call call = {.op = GOROCE_SHARE_DOORBELLS, .want_fds = (int)r->shards};
	int err;

	if (r->shards < 1 || r->shards > MAX_SHARDS || r->doorbells < 1 || r->doorbells > MAX_BELLS)
		return EPROTO;
	d->size = BELLS_SUMMARY + summary_size(r->doorbells) + summary_words(r->doorbells) * BELLS_A_WORD / 8;
	err = shared_call(&c->control, &call, d->size * r->shards, &d->pages);
	if (err)
		return err;
	d->shards = r->shards;
	d->count = r->doorbells;
	memcpy(d->wakes, call.fds, r->shards * sizeof(*d->wakes));
	if (formatted(d))
		return 0;
	doorbells_close(d);
	return EPROTO;
}

/* doorbells_close is called when no thread can post any more: the next ring would write to memory that is not
 * mapped. */
void doorbells_close(struct doorbells *d)
{
	close_all(d->wakes, (int)d->shards);
	shared_free(&d->pages);
	d->shards = 0;
}

/*
 * doorbell_ring makes no system call while the daemon's shard is awake. The caller has published requests, and holds
 * the lock of their ring; other threads may ring other QPs meanwhile. shard and doorbell are those of a reply, which
 * were checked when the QP was made (qp.c).
 *
 * The order matters. The shard empties a word of the summary first, and then the words of doorbells that it names. If
 * the bit of the summary were set first, the shard could empty both words before the doorbell is set, and would not
 * see it. The fence has its counterpart in the shard, between its store of the wake word and its look at the summary:
 * one of the two sees what the other has stored. Of several threads that find the shard asleep the exchange lets one
 * write.
 */
void doorbell_ring(struct doorbells *d, uint32_t shard, uint32_t doorbell)
{
	char *base = d->pages.at + shard * d->size;
	_Atomic uint64_t *summary = (void *)(base + BELLS_SUMMARY);
	_Atomic uint64_t *bells = (void *)(base + BELLS_SUMMARY + summary_size(d->count));
	_Atomic uint32_t *wake = (void *)(base + BELLS_WAKE);

	atomic_fetch_or(&bells[doorbell / 64], 1ull << doorbell % 64);
	atomic_fetch_or(&summary[doorbell / BELLS_A_WORD], 1ull << doorbell / 64 % 64);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(wake) && atomic_exchange(wake, 0)) {
		uint64_t one = 1;
		ssize_t n;
		int cancel;
		/* write must not end a thread that is cancelled: callers hold a lock, and the shard has to be woken. */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		do
			n = write(d->wakes[shard], &one, sizeof(one));
		while (n < 0 && errno == EINTR);
		pthread_setcancelstate(cancel, NULL);
	}
}
