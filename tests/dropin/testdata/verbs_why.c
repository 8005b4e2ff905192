/*
 * verbs_why CASE [ADDRESS]: a request of one QP to another of this program fails. With GOROCE_DEBUG=1 the library says why, at
 * both ends. A line has the numbers of both QPs, 0 for one that is gone; then it reads its standard input to the end,
 * while somebody asks `goroced why`. The last line has the codes of both completions. Without a case it lists them.
 * ADDRESS is an IPv4 address with a closed port, for port_closed.
 */
#include "verbs_common.h"
#include <arpa/inet.h>

static struct ibv_qp *a, *b;
static struct ibv_cq *cq_a, *cq_b;
static const char *address;
static bool lost; /* a completion of a */

static void request(enum ibv_wr_opcode op, struct ibv_sge sge, uint64_t addr, uint32_t rkey)
{
	IS(0, post(a, (struct ibv_send_wr){.opcode = op, .wr.rdma = {addr, rkey}}, sge));
}

static struct ibv_mr *other(struct ibv_pd *of, int access)
{
	struct ibv_mr *m = ibv_reg_mr(of, buf + 8192, 4096, access);

	MUST(m);
	return m;
}

static void write_to(const struct ibv_mr *m, uint64_t off, uint32_t n)
{
	request(IBV_WR_RDMA_WRITE, piece(0, n), (uintptr_t)m->addr + off, m->rkey);
}

static void wrong_key(void) { request(IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)buf, mr->rkey ^ 0x1100); }
static void too_far(void) { write_to(other(pd, ALL), 4096 - 6, 64); }
static void no_right(void) { write_to(other(pd, IBV_ACCESS_REMOTE_READ), 0, 8); }
static void other_pd(void) { write_to(other(ibv_alloc_pd(ctx), ALL), 0, 8); }

static void deregistered(void)
{
	struct ibv_mr *m = other(pd, ALL), gone = *m;

	IS(0, ibv_dereg_mr(m));
	write_to(&gone, 0, 8);
}

static void access_flags(void)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};

	IS(0, ibv_modify_qp(b, &attr, IBV_QP_ACCESS_FLAGS));
	write_to(mr, 0, 8);
}

static void too_long(void) { request(IBV_WR_SEND, piece(0, 100), 0, 0); }

static void receive_gone(void)
{
	struct ibv_mr *m = other(pd, ALL);

	IS(0, receive(b, (struct ibv_sge){(uintptr_t)m->addr, 8, m->lkey}, 1));
	IS(0, ibv_dereg_mr(m));
	request(IBV_WR_SEND, piece(0, 8), 0, 0); /* takes the receive of main */
	request(IBV_WR_SEND, piece(0, 8), 0, 0);
}

static void own_key(void)
{
	struct ibv_sge sge = piece(0, 8);

	sge.lkey ^= 0x2200;
	request(IBV_WR_RDMA_WRITE, sge, (uintptr_t)buf, mr->rkey);
}

static void own_right(void)
{
	struct ibv_mr *m = other(pd, 0);

	request(IBV_WR_RDMA_READ, (struct ibv_sge){(uintptr_t)m->addr, 8, m->lkey}, (uintptr_t)buf, mr->rkey);
}

static void not_ready(void)
{
	struct ibv_qp_attr drained = {.qp_state = IBV_QPS_SQD, .rnr_retry = 1}, ready = {.qp_state = IBV_QPS_RTS};

	IS(0, ibv_modify_qp(a, &drained, IBV_QP_STATE));
	IS(0, ibv_modify_qp(a, &drained, IBV_QP_STATE | IBV_QP_RNR_RETRY));
	IS(0, ibv_modify_qp(a, &ready, IBV_QP_STATE));
	request(IBV_WR_SEND, piece(0, 8), 0, 0); /* takes the receive of main */
	request(IBV_WR_SEND, piece(0, 8), 0, 0);
}

static void silence(void)
{
	IS(0, ibv_destroy_qp(b));
	b = NULL;
	write_to(mr, 0, 8);
}

static void port_closed(void)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	MUST(address && inet_pton(AF_INET, address, gid.raw + 12) == 1);
	IS(0, ibv_destroy_qp(a));
	a = make_qp(IBV_QPT_RC, cq_a, NULL);
	connect_to(a, gid, b->qp_num);
	IS(0, ibv_destroy_qp(b));
	b = NULL;
	write_to(mr, 0, 8);
}

static void cq_full(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	struct ibv_cq *small = ibv_create_cq(ctx, 1, NULL, NULL, 0);

	MUST(small && small->cqe < DEPTH);
	IS(0, ibv_destroy_qp(a));
	a = make_qp(IBV_QPT_RC, small, NULL);
	IS(0, ibv_modify_qp(b, &attr, IBV_QP_STATE));
	connect_qp(b, a->qp_num);
	connect_qp(a, b->qp_num);
	for (int i = 0; i < DEPTH; i++)
		write_to(mr, 0, 8);
	do
		IS(0, ibv_query_qp(a, &attr, IBV_QP_STATE, &init));
	while (attr.qp_state != IBV_QPS_ERR);
	lost = true;
}

static void misaligned(void)
{
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.wr.atomic = {.remote_addr = (uintptr_t)buf + 4, .compare_add = 1, .rkey = mr->rkey}}, piece(8, 8)));
}

#define CASE(name) { #name, name }

static const struct {
	const char *name;
	void (*fail)(void);
} cases[] = {
	CASE(wrong_key), CASE(too_far), CASE(no_right), CASE(other_pd), CASE(deregistered), CASE(access_flags),
	CASE(too_long), CASE(receive_gone), CASE(own_key), CASE(own_right), CASE(not_ready), CASE(silence),
	CASE(port_closed), CASE(cq_full), CASE(misaligned),
};

/* first_error polls until there is a completion with an error, and returns its code. */
static uint32_t first_error(struct ibv_cq *of)
{
	struct ibv_wc wc;
	int n;

	do {
		while (!(n = ibv_poll_cq(of, 1, &wc)))
			;
		IS(1, n);
	} while (wc.status == IBV_WC_SUCCESS);
	return wc.vendor_err;
}

int main(int argc, char **argv)
{
	uint32_t of_a;

	address = argc > 2 ? argv[2] : NULL;
	open_first();
	MUST(cq_a = ibv_create_cq(ctx, 64, NULL, NULL, 0));
	MUST(cq_b = ibv_create_cq(ctx, 64, NULL, NULL, 0));
	a = make_qp(IBV_QPT_RC, cq_a, NULL);
	b = make_qp(IBV_QPT_RC, cq_b, NULL);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	IS(0, receive(b, piece(0, 10), 1));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc == 1)
			puts(cases[i].name);
		else if (!strcmp(argv[1], cases[i].name))
			cases[i].fail();
	}
	if (argc == 1)
		return 0;
	of_a = lost ? 0 : first_error(cq_a);
	printf("qp %u %u\n", a->qp_num, b ? b->qp_num : 0);
	fflush(stdout);
	while (getchar() != EOF)
		;
	printf("vendor_err of a 0x%x", of_a);
	if (b) { /* what is queued there is flushed, if the QP has failed, too */
		struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
		struct ibv_recv_wr recv = {0}, *bad;

		ibv_post_recv(b, &recv, &bad);
		IS(0, ibv_modify_qp(b, &err, IBV_QP_STATE));
		printf(", of b 0x%x", first_error(cq_b));
	}
	puts("");
	return 0;
}
