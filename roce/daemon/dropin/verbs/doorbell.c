/* Doorbells: a bit for each QP, in memory shared with the daemon (docs/abi.md, "Doorbells"). */
#include "lib.h"

#include <unistd.h>

enum { BELLS_MAGIC = 0x4C4C4542, BELLS_WAKE = 64, BELLS_SUMMARY = 128, BELLS_A_WORD = 4096, MAX_BELLS = 1 << 16 };

static uint32_t summary_words(uint32_t bells) { return (bells + BELLS_A_WORD - 1) / BELLS_A_WORD; }

static size_t summary_size(uint32_t bells) { return (summary_words(bells) + 7) / 8 * LINE; }

/* doorbells_open maps the doorbells of all shards: fds are the memfd and then the eventfds. It closes the
 * memfd, and keeps the others if it returns 0. */
int doorbells_open(struct doorbells *d, const struct goroce_open_reply *r, const int *fds)
{
	size_t words = summary_words(r->doorbells);
	size_t size = BELLS_SUMMARY + summary_size(r->doorbells) + words * BELLS_A_WORD / 8;
	void *pages;
	int err;

	if (r->shards < 1 || r->shards > MAX_SHARDS || r->doorbells < 1 || r->doorbells > MAX_BELLS) {
		close(fds[0]);
		return EPROTO;
	}
	err = shared_map(fds[0], size * r->shards, &pages);
	if (err)
		return err;
	*d = (struct doorbells){.pages = pages, .size = size, .shards = r->shards, .count = r->doorbells};
	for (uint32_t i = 0; i < r->shards; i++) {
		const struct goroce_doorbells_header *h = (void *)(d->pages + i * size);
		d->wakes[i] = fds[1 + i];
		if (h->magic == BELLS_MAGIC && h->doorbells == summary_words(r->doorbells) * BELLS_A_WORD)
			continue;
		shared_unmap(d->pages, size * r->shards);
		return EPROTO;
	}
	return 0;
}

void doorbells_close(struct doorbells *d)
{
	close_all(d->wakes, (int)d->shards);
	shared_unmap(d->pages, d->size * d->shards);
	d->shards = 0;
	d->pages = NULL;
}

/* doorbell_ring makes no system call while the daemon's shard is awake. */
void doorbell_ring(struct doorbells *d, uint32_t shard, uint32_t doorbell)
{
	char *base = d->pages + shard * d->size;
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
