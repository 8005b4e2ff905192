/* A walk through all of libibverbs that accepts every answer: those of a daemon that lies. */
#include "verbs_common.h"

/* drain polls for a moment at most: completions may never come. */
static void drain(struct ibv_cq *of)
{
	struct ibv_wc wc[4];

	for (int i = 0; of && i < 100; i++) {
		if (ibv_poll_cq(of, 4, wc) < 0)
			return;
	}
}

static void walk_qp(enum ibv_qp_type type, struct ibv_cq *of, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {.send_cq = of, .recv_cq = of, .srq = srq, .qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
				.max_inline_data = 100}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
	struct ibv_sge sge = {(uintptr_t)buf, 50, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)buf, mr->rkey}}, *bad;
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		return;
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
			.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid);
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
			.max_rd_atomic = 4};
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
	qp->state = IBV_QPS_RTS; /* to post, even if the daemon has refused */
	for (int i = 0; i < 3 * DEPTH; i++) {
		ibv_post_recv(qp, &recv, &bad_recv);
		wr.send_flags ^= IBV_SEND_INLINE;
		ibv_post_send(qp, &wr, &bad);
	}
	drain(of);
	ibv_query_qp(qp, &a, 0, &init);
	ibv_destroy_qp(qp);
}

static void walk_queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_cq *of = ibv_create_cq(ctx, 64, NULL, channel, 0), *got;
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_recv_wr recv = {0}, *bad;
	void *context;

	if (channel)
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; srq && i < 20; i++)
		ibv_post_srq_recv(srq, &recv, &bad);
	if (srq)
		ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 100}, IBV_SRQ_MAX_WR);
	for (int round = 0; of && round < 2; round++) {
		ibv_req_notify_cq(of, round);
		walk_qp(IBV_QPT_RC, of, NULL);
		walk_qp(IBV_QPT_UC, of, srq);
		ibv_resize_cq(of, 200);
		if (channel && !ibv_get_cq_event(channel, &got, &context))
			ibv_ack_cq_events(got, 1);
	}
	if (srq) {
		ibv_query_srq(srq, &init.attr);
		ibv_destroy_srq(srq);
	}
	if (of)
		ibv_destroy_cq(of);
	if (channel)
		ibv_destroy_comp_channel(channel);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex device;
	struct ibv_port_attr port;
	struct ibv_gid_entry table[4];
	struct ibv_async_event event;
	struct ibv_ah *ah;
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	__be16 pkey;

	if (!list || !list[0] || !(ctx = ibv_open_device(list[0])))
		return 0;
	ibv_query_device_ex(ctx, NULL, &device);
	ibv_query_port(ctx, 1, &port);
	ibv_query_gid_table(ctx, table, 4, 0);
	ibv_query_gid(ctx, 1, 0, &attr.grh.dgid);
	ibv_query_pkey(ctx, 1, 0, &pkey);
	MUST(!posix_memalign((void **)&buf, 4096, SIZE));
	pd = ibv_alloc_pd(ctx);
	if (pd && (mr = ibv_reg_mr(pd, buf, SIZE, ALL))) {
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL);
		if ((ah = ibv_create_ah(pd, &attr)))
			ibv_destroy_ah(ah);
		walk_queues();
		ibv_dereg_mr(mr);
	}
	if (pd)
		ibv_dealloc_pd(pd);
	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	while (!ibv_get_async_event(ctx, &event))
		ibv_ack_async_event(&event);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	return 0;
}
