/* Threads that use the library at once: `verbs_threads CASE ROUNDS` ends with status 0 if each had what was its own. */
#include "verbs_common.h"

enum { THREADS = 8, BLOCK = 3000, RECEIVES = 2, MAX_ROUNDS = 10000 };

/* Threads have their copies on their stacks, and that of the library's own thread is smaller. */
static __thread char large[256 << 10] __attribute__((used));

static int rounds;
static pthread_barrier_t barrier;

static void run_threads(void *(*f)(void *))
{
	pthread_t all[THREADS];

	MUST(!pthread_barrier_init(&barrier, NULL, THREADS));
	for (uintptr_t i = 0; i < THREADS; i++)
		MUST(!pthread_create(&all[i], NULL, f, (void *)i));
	for (int i = 0; i < THREADS; i++)
		MUST(!pthread_join(all[i], NULL));
	MUST(!pthread_barrier_destroy(&barrier));
}

static void meet(void)
{
	int err = pthread_barrier_wait(&barrier);

	MUST(!err || err == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* What thread `who` sends in a round. */
static char byte_of(uintptr_t who, int round, uint32_t at)
{
	return (char)(at * 7 + (uint32_t)round * 31 + (uint32_t)who * 101 + 1);
}

static uint32_t length_of(uintptr_t who, int round) { return 1 + ((uint32_t)round * 577 + (uint32_t)who * 89) % BLOCK; }

struct end {
	uintptr_t who;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	int sent, received; /* completions of each kind */
	uint32_t lengths[RECEIVES];
	char out[BLOCK], in[RECEIVES][BLOCK];
};

static void end_receive(struct end *e, int round)
{
	struct ibv_sge sge = {(uintptr_t)e->in[round % RECEIVES], BLOCK, e->mr->lkey};

	IS(0, receive(e->qp, sge, 1));
}

static void end_round(struct end *e, uintptr_t peer, int round)
{
	uint32_t n = length_of(e->who, round), want = length_of(peer, round);
	struct ibv_wc wc;

	for (uint32_t i = 0; i < n; i++)
		e->out[i] = byte_of(e->who, round, i);
	IS(0, post(e->qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, (struct ibv_sge){(uintptr_t)e->out, n,
			e->mr->lkey}));
	while (e->sent <= round || e->received <= round) { /* the peer may be a round ahead */
		wc = wait_wc(e->cq, IBV_WC_SUCCESS);
		MUST(wc.qp_num == e->qp->qp_num);
		if (wc.opcode == IBV_WC_RECV)
			e->lengths[e->received++ % RECEIVES] = wc.byte_len;
		else
			e->sent++;
	}
	IS((int)want, (int)e->lengths[round % RECEIVES]);
	for (uint32_t i = 0; i < want; i++)
		IS(byte_of(peer, round, i), e->in[round % RECEIVES][i]);
	end_receive(e, round);
}

static uint32_t numbers[THREADS];

/* Threads 2n and 2n+1 send blocks to each other, each by a QP, a CQ and memory of its own. */
static void *exchange(void *arg)
{
	uintptr_t peer = (uintptr_t)arg ^ 1;
	struct end *e = calloc(1, sizeof(*e));

	MUST(e);
	e->who = (uintptr_t)arg;
	MUST(e->cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0));
	MUST(e->mr = ibv_reg_mr(pd, e, sizeof(*e), ALL));
	e->qp = make_qp(IBV_QPT_RC, e->cq, NULL);
	numbers[e->who] = e->qp->qp_num;
	meet();
	connect_qp(e->qp, numbers[peer]);
	for (int i = 0; i < RECEIVES; i++)
		end_receive(e, i);
	meet();
	for (int i = 0; i < rounds; i++)
		end_round(e, peer, i);
	meet(); /* the peer may wait for an acknowledgement */
	IS(0, ibv_destroy_qp(e->qp));
	IS(0, ibv_dereg_mr(e->mr));
	IS(0, ibv_destroy_cq(e->cq));
	free(e);
	return NULL;
}

static void own(void)
{
	open_first();
	run_threads(exchange);
	close_all();
}

static struct ibv_cq *shared;
static atomic_uchar seen[THREADS * MAX_ROUNDS]; /* how often each request was complete, by wr_id */
static atomic_int completed;

static void count(const struct ibv_wc *wc)
{
	IS(IBV_WC_SUCCESS, (int)wc->status);
	MUST(wc->wr_id < (uint64_t)(THREADS * rounds));
	MUST(wc->qp_num == numbers[wc->wr_id / (uint64_t)rounds]);
	IS(0, atomic_fetch_add(&seen[wc->wr_id], 1));
	atomic_fetch_add(&completed, 1);
}

/* Each thread posts to a QP of its own, and takes what it finds in the CQ of all, whosever it is. */
static void *post_and_poll(void *arg)
{
	uintptr_t who = (uintptr_t)arg;
	struct ibv_qp *qp = loop(shared);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
			.num_sge = 1, .wr.rdma = {(uintptr_t)buf + 64 * who, mr->rkey}}, *bad;
	uint64_t value;
	struct ibv_sge sge = {(uintptr_t)&value, sizeof(value), 0};
	struct ibv_wc wc[4];
	int posted = 0, n;

	wr.sg_list = &sge;
	numbers[who] = qp->qp_num;
	meet();
	while (posted < rounds || atomic_load(&completed) < THREADS * rounds) {
		if (posted < rounds) {
			int err;
			wr.wr_id = value = who * (uint64_t)rounds + (uint64_t)posted;
			err = ibv_post_send(qp, &wr, &bad);
			MUST(!err || err == ENOMEM);
			posted += !err;
		}
		MUST((n = ibv_poll_cq(shared, 4, wc)) >= 0);
		for (int i = 0; i < n; i++)
			count(&wc[i]);
	}
	IS(0, ibv_destroy_qp(qp));
	return NULL;
}

static void one_cq(void)
{
	struct ibv_wc wc;

	open_first();
	MUST(shared = ibv_create_cq(ctx, THREADS * rounds, NULL, NULL, 0));
	run_threads(post_and_poll);
	IS(0, ibv_poll_cq(shared, 1, &wc));
	for (int i = 0; i < THREADS * rounds; i++)
		IS(1, atomic_load(&seen[i]));
	for (uint64_t who = 0; who < THREADS; who++) /* the last WRITE of each */
		MUST(*(uint64_t *)(buf + 64 * who) == (who + 1) * (uint64_t)rounds - 1);
	IS(0, ibv_destroy_cq(shared));
	close_all();
}

/* Each thread lists the devices, and opens one: the list is the same for all. */
static void *list_and_open(void *arg)
{
	static _Atomic(struct ibv_device *) first;
	const int times = rounds / 10 + 1;

	(void)arg;
	for (int i = 0; i < times; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL), *none = NULL;
		struct ibv_context *mine;
		MUST(list && list[0]);
		MUST(atomic_compare_exchange_strong(&first, &none, list[0]) || none == list[0]);
		MUST(mine = ibv_open_device(list[0]));
		ibv_free_device_list(list);
		IS(0, ibv_close_device(mine));
	}
	return NULL;
}

/* use_alone uses the device when the first thread has ended. */
static void *use_alone(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	open_first();
	write_once(loop(cq));
	wait_wc(cq, IBV_WC_SUCCESS);
	exit(0);
}

static void alone(void)
{
	static pthread_t self;
	pthread_t other;

	self = pthread_self();
	MUST(!pthread_create(&other, NULL, use_alone, &self));
	pthread_exit(NULL);
}

int main(int argc, char **argv)
{
	if (argc != 3 || (rounds = atoi(argv[2])) < 1 || rounds > MAX_ROUNDS)
		return 2;
	if (!strcmp(argv[1], "own"))
		own();
	else if (!strcmp(argv[1], "shared"))
		one_cq();
	else if (!strcmp(argv[1], "devices"))
		run_threads(list_and_open);
	else if (!strcmp(argv[1], "alone"))
		alone();
	else
		return 2;
	return 0;
}
