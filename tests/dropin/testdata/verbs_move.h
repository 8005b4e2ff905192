/* Memory that the library moves to files, and requests of every kind by which a program and its daemon read and write a
 * region. */
#include "verbs_common.h"

enum { PAGE = 4096, LENGTH = 64 * PAGE };

static inline char *fresh(size_t length)
{
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(p != MAP_FAILED);
	return p;
}

/* sharing returns how a page is mapped: p or s. */
static inline char sharing(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512], c, found = 0;

	MUST(f);
	while (!found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*c%*c%*c%c", &start, &end, &c) == 3 && start <= (unsigned long)at &&
				(unsigned long)at < end)
			found = c;
	}
	fclose(f);
	return found;
}

static inline void mark(char *at, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (char)(i * 7 + i / 1000 + (size_t)seed);
}

static inline void marked(const char *at, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		MUST(at[i] == (char)(i * 7 + i / 1000 + (size_t)seed));
}

static inline void awaited(pid_t child)
{
	int status;

	MUST(waitpid(child, &status, 0) == child);
	IS(0, status);
}

static struct ibv_qp *qp; /* its own peer */

static void transfer(enum ibv_wr_opcode opcode, struct ibv_mr *m, char *at, uint64_t remote, uint32_t rkey, uint32_t n)
{
	struct ibv_send_wr wr = {.opcode = opcode, .wr.rdma = {remote, rkey}};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	}
	IS(0, post(qp, wr, (struct ibv_sge){(uintptr_t)at, n, m->lkey}));
}

/* move has every kind of request read and write a region, whose last bytes the program sees in memory at seen. */
static void move(struct ibv_mr *m, char *seen)
{
	const uint32_t n = 3000;
	uint64_t at = (uintptr_t)m->addr + m->length - n, word = at & ~7ull;
	char *here = buf + 100, *there = seen + m->length - n;

	for (uint32_t i = 0; i < n; i++)
		here[i] = (char)(i * 7 + 1);
	memset(there, 0, n);
	transfer(IBV_WR_RDMA_WRITE, mr, here, at, m->rkey, n);
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!memcmp(here, there, n));
	there[17] ^= 1;
	memset(here, 0, n);
	transfer(IBV_WR_RDMA_READ, mr, here, at, m->rkey, n);
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!memcmp(here, there, n) && here[1] == 8);
	memset(there, 0, n);
	IS(0, receive(qp, (struct ibv_sge){at, n, m->lkey}, 1));
	transfer(IBV_WR_SEND, mr, here, 0, 0, n);
	wait_wc(cq, IBV_WC_SUCCESS);
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!memcmp(here, there, n) && here[1] == 8);
	there[18] ^= 1;
	transfer(IBV_WR_RDMA_WRITE, m, (char *)at, (uintptr_t)here, mr->rkey, n); /* from the region */
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!memcmp(here, there, n));
	uint64_t *counter = (uint64_t *)(seen + (word - (uintptr_t)m->addr)), before = *counter;
	transfer(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, here, word, m->rkey, 8);
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(*counter == before + 5 && *(uint64_t *)here == before);
}
