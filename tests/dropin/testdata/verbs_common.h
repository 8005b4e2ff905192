/* What the programs that test libibverbs have in common. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum { SIZE = 64 << 10, DEPTH = 16, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq __attribute__((unused));
static struct ibv_mr *mr;
static char *buf;

static inline void open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	MUST(ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	MUST(pd = ibv_alloc_pd(ctx));
	MUST(cq = ibv_create_cq(ctx, 256, NULL, NULL, 0));
	MUST(!posix_memalign((void **)&buf, 4096, SIZE));
	memset(buf, 0, SIZE);
	MUST(mr = ibv_reg_mr(pd, buf, SIZE, ALL));
}

static inline void close_all(void)
{
	IS(0, ibv_dereg_mr(mr));
	IS(0, ibv_destroy_cq(cq));
	IS(0, ibv_dealloc_pd(pd));
	IS(0, ibv_close_device(ctx));
	free(buf);
}

static inline struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_cq *of, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr a = {.send_cq = of, .recv_cq = of, .srq = srq, .qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2}};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);

	MUST(qp);
	return qp;
}

/* connect_to takes an RC, UC or XRC QP to RTS, with a peer at an address. */
static inline void connect_to(struct ibv_qp *qp, union ibv_gid gid, uint32_t peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
	int rtr = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	if (qp->qp_type == IBV_QPT_UC)
		rtr = rts = 0;
	if (qp->qp_type == IBV_QPT_XRC_SEND)
		rtr = 0;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
			.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .dgid = gid}}};
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			rtr));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
			.max_rd_atomic = 4};
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | rts));
	IS(IBV_QPS_RTS, (int)qp->state);
}

/* connect_qp does so with a peer on the same port. */
static inline void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	union ibv_gid gid;

	IS(0, ibv_query_gid(ctx, 1, 0, &gid));
	connect_to(qp, gid, peer);
}

/* wait_wc polls until there is a completion, which must have that status. */
static inline struct ibv_wc wait_wc(struct ibv_cq *of, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(of, 1, &wc)))
		;
	IS(1, n);
	IS((int)status, (int)wc.status);
	return wc;
}

static inline struct ibv_sge piece(size_t at, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)buf + at, length, mr->lkey};
}

static inline int post(struct ibv_qp *qp, struct ibv_send_wr wr, struct ibv_sge sge)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_SIGNALED;
	err = ibv_post_send(qp, &wr, &bad);
	MUST(!err || bad == &wr);
	return err;
}

static inline int receive(struct ibv_qp *qp, struct ibv_sge sge, int num_sge)
{
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = num_sge}, *bad = NULL;
	int err = ibv_post_recv(qp, &wr, &bad);

	MUST(!err || bad == &wr);
	return err;
}

static inline bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* loop makes an RC QP that is its own peer. write_once has such a QP WRITE 8 bytes, which makes a completion. */
static inline struct ibv_qp *loop(struct ibv_cq *of)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC, of, NULL);

	connect_qp(qp, qp->qp_num);
	return qp;
}

static inline void write_once(struct ibv_qp *qp)
{
	IS(0, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {(uintptr_t)buf + 100, mr->rkey}},
			piece(0, 8)));
}
