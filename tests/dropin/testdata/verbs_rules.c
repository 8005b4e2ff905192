/* The rules of libibverbs that programs count on, each a case: `verbs_rules CASE` ends with status 0 if it holds. */
#include "verbs_common.h"

#include <sys/resource.h>

/* A device that is listed again has the same pointer: librdmacm takes another one for another device. */
static void listed_again(void)
{
	struct ibv_device **before = ibv_get_device_list(NULL), **after = ibv_get_device_list(NULL);

	MUST(before && after && before[0] && before[0] == after[0]);
	ibv_free_device_list(before);
	ibv_free_device_list(after);
	MUST(after = ibv_get_device_list(NULL));
	MUST(after[0] == ctx->device);
	ibv_free_device_list(after);
}

/* Arguments that are wrong, and the errno that rdma_rxe gives. */
/* sizes: queues have what is asked for, rounded up as NICs do, and say what fits. */
static void sizes(void)
{
	static const int cqe[][2] = {{1, 1}, {2, 3}, {3, 3}, {4, 7}, {128, 255}, {1000, 1023}}; /* as rdma_rxe's */
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {100, 129, 1, 1, 0}};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 100, .max_sge = 0, .srq_limit = 12345}}; /* means nothing here */
	struct ibv_srq *s;
	struct ibv_qp *qp;
	struct ibv_cq *q;

	open_first();
	for (size_t i = 0; i < sizeof(cqe) / sizeof(*cqe); i++) {
		MUST(q = ibv_create_cq(ctx, cqe[i][0], NULL, NULL, 0));
		IS(cqe[i][1], q->cqe);
		IS(0, ibv_destroy_cq(q));
	}
	init.send_cq = init.recv_cq = cq;
	MUST(qp = ibv_create_qp(pd, &init));
	IS(128, init.cap.max_send_wr);
	IS(256, init.cap.max_recv_wr);
	IS(0, ibv_destroy_qp(qp));
	MUST(s = ibv_create_srq(pd, &srq));
	IS(128, srq.attr.max_wr);
	IS(0, ibv_destroy_srq(s));
}

/* beyond: a CQ of one entry has room for two completions, which programs lean on that leave one unpolled. */
static void beyond(void)
{
	struct ibv_cq *q;
	struct ibv_qp *qp;

	open_first();
	MUST(q = ibv_create_cq(ctx, 1, NULL, NULL, 0));
	qp = loop(q);
	write_once(qp);
	write_once(qp);
	wait_wc(q, IBV_WC_SUCCESS);
	wait_wc(q, IBV_WC_SUCCESS);
}

/* limits asks for more than the device has of each: the library itself refuses it. */
static void limits(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_attr more = {0};
	struct ibv_device_attr d;
	struct ibv_srq *s;

	open_first();
	IS(0, ibv_query_device(ctx, &d));
	const struct ibv_qp_cap caps[] = {
		{.max_send_wr = d.max_qp_wr + 1}, {.max_recv_wr = d.max_qp_wr + 1}, {.max_send_sge = d.max_sge + 1},
		{.max_recv_sge = d.max_sge + 1}, {.max_inline_data = 1 << 20},
	};
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
		struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = caps[i]};
		FAILS(EINVAL, ibv_create_qp(pd, &init));
	}
	MUST(s = ibv_create_srq(pd, &srq));
	more.max_wr = d.max_srq_wr + 1;
	IS(EINVAL, ibv_modify_srq(s, &more, IBV_SRQ_MAX_WR));
	srq.attr.max_wr = d.max_srq_wr + 1;
	FAILS(EINVAL, ibv_create_srq(pd, &srq));
	srq.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = d.max_srq_sge + 1};
	FAILS(EINVAL, ibv_create_srq(pd, &srq));
	FAILS(EINVAL, ibv_create_cq(ctx, d.max_cqe + 1, NULL, NULL, 0));
	IS(EINVAL, ibv_resize_cq(cq, d.max_cqe + 1));
}

static void arguments(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	struct ibv_ah_attr ah = {.port_num = 1};
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 1 << 20}};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 0}};
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_qp *qp;
	struct ibv_cq *other;
	union ibv_gid gid;
	__be16 pkey;

	open_first();
	listed_again();
	IS(0, ibv_query_device(ctx, &device));
	FAILS(EINVAL, ibv_create_cq(ctx, 0, NULL, NULL, 0));
	FAILS(EINVAL, ibv_create_cq(ctx, device.max_cqe + 1, NULL, NULL, 0));
	FAILS(EINVAL, ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors));
	FAILS(EINVAL, ibv_create_cq(ctx, 1, NULL, NULL, -1));
	init.send_cq = init.recv_cq = cq;
	FAILS(EINVAL, ibv_create_qp(pd, &init));
	init.cap.max_send_wr = 1;
	init.recv_cq = NULL;
	FAILS(EINVAL, ibv_create_qp(pd, &init));
	init.recv_cq = cq;
	init.qp_type = IBV_QPT_RAW_PACKET;
	FAILS(EOPNOTSUPP, ibv_create_qp(pd, &init));
	FAILS(EINVAL, ibv_create_ah(pd, &ah));
	FAILS(EINVAL, ibv_create_srq(pd, &srq));
	REFUSED(EINVAL, ibv_query_port(ctx, 2, &port));
	IS(0, ibv_query_port(ctx, 1, &port));
	errno = 0;
	IS(-1, ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid));
	IS(EINVAL, ibv_query_gid_ex(ctx, 1, 0, &(struct ibv_gid_entry){0}, 1));
	IS(-EINVAL, (int)ibv_query_gid_table(ctx, &(struct ibv_gid_entry){0}, 1, 1));
	IS(EINVAL, errno);
	IS(-1, ibv_query_pkey(ctx, 1, 1, &pkey));
	IS(-1, ibv_get_pkey_index(ctx, 1, htobe16(0x1234)));
	IS(0, ibv_get_pkey_index(ctx, 1, htobe16(0xFFFF)));

	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(other = ibv_create_cq(ctx, 4, NULL, channel, 0));
	IS(EBUSY, ibv_destroy_comp_channel(channel));
	qp = make_qp(IBV_QPT_RC, other, NULL);
	IS(EBUSY, ibv_destroy_cq(other));
	IS(EBUSY, ibv_dealloc_pd(pd));
	IS(EINVAL, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	IS(EINVAL, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 1)));
	IS(EINVAL, receive(qp, piece(0, 1), 1));
	connect_qp(qp, qp->qp_num);
	IS(EINVAL, post(qp, (struct ibv_send_wr){.opcode = 77}, piece(0, 1)));
	IS(EINVAL, receive(qp, piece(0, 1), 33));
	IS(EINVAL, receive(qp, piece(0, 1), -1));
	for (int i = 0; i < DEPTH; i++)
		IS(0, receive(qp, piece(0, 1), 1));
	IS(ENOMEM, receive(qp, piece(0, 1), 1));
	IS(EINVAL, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE},
			piece(0, SIZE)));
	REFUSED(EINVAL, ibv_resize_cq(other, 0));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_cq(other));
	IS(0, ibv_destroy_comp_channel(channel));
	close_all();
}

/* everywhere: implicit registration on demand has all addresses that arm64 has, too, as the binding of a window shows. */
static void everywhere(void)
{
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_qp *qp = loop(cq);
	struct ibv_mr *m;

	MUST(mw && (m = ibv_reg_mr(pd, NULL, SIZE_MAX, ALL | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND)));
	bind.bind_info = (struct ibv_mw_bind_info){m, (1ull << 48) - 4096, 4096, IBV_ACCESS_REMOTE_WRITE};
	IS(0, ibv_bind_mw(qp, mw, &bind));
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, ibv_dealloc_mw(mw));
	IS(0, ibv_dereg_mr(m));
	IS(0, ibv_destroy_qp(qp));
}

/* anew_by_rights: without new rights, memory is registered anew by those that the region has. p has a page, one that can only be
 * read, and one that is not there. */
static void anew_by_rights(char *p)
{
	const int moves = IBV_REREG_MR_CHANGE_TRANSLATION, rights = IBV_REREG_MR_CHANGE_ACCESS;
	const int demand = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *m;

	MUST(m = ibv_reg_mr(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE));
	IS(IBV_REREG_MR_ERR_CMD, ibv_rereg_mr(m, moves, NULL, p, 8192, 0));
	IS(EFAULT, errno);
	IS(0, ibv_rereg_mr(m, moves | rights, NULL, p, 8192, IBV_ACCESS_REMOTE_READ));
	IS(0, ibv_rereg_mr(m, moves, NULL, p + 4096, 4096, ALL));
	IS(IBV_REREG_MR_ERR_CMD, ibv_rereg_mr(m, rights, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	IS(EFAULT, errno);
	IS(0, ibv_dereg_mr(m));
	MUST(m = ibv_reg_mr(pd, p, 4096, demand));
	IS(0, ibv_rereg_mr(m, moves, NULL, p, 3 * 4096, 0));
	IS(0, ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &(struct ibv_sge){(uintptr_t)p, 1, m->lkey}, 1));
	IS(0, ibv_dereg_mr(m));
}

/* Memory that is not there, or not writable, is refused when it is registered. */
static void memory(void)
{
	char *p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *m;
	uint32_t key;

	open_first();
	MUST(p != MAP_FAILED);
	MUST(!munmap(p + 8192, 4096));
	MUST(!mprotect(p + 4096, 4096, PROT_READ));
	FAILS(EFAULT, ibv_reg_mr(pd, NULL, 1, IBV_ACCESS_LOCAL_WRITE));
	FAILS(EFAULT, ibv_reg_mr(pd, p + 4096, 4097, 0));
	FAILS(EFAULT, ibv_reg_mr(pd, p, 4097, IBV_ACCESS_LOCAL_WRITE));
	FAILS(EINVAL, ibv_reg_mr(pd, p, SIZE_MAX, 0)); /* which wraps */
	FAILS(EINVAL, ibv_reg_mr(pd, p, 1, IBV_ACCESS_REMOTE_WRITE));
	FAILS(EINVAL, ibv_reg_mr(pd, p, 1, 1 << 15));
	MUST(m = ibv_reg_mr(pd, p, 8192, IBV_ACCESS_REMOTE_READ));
	IS(0, ibv_dereg_mr(m));
	MUST(m = ibv_reg_mr(pd, p, 4096, ALL | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB | 1 << 28));
	key = m->rkey;
	IS(IBV_REREG_MR_ERR_CMD, ibv_rereg_mr(m, 0, NULL, NULL, 0, 0));
	IS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(m, 8, NULL, NULL, 0, 0));
	IS(IBV_REREG_MR_ERR_CMD, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + 4096, 4097, 0));
	anew_by_rights(p);
	IS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 0, 0));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, (void *)1, (void *)1, 1, IBV_ACCESS_REMOTE_READ));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, buf, 10, ALL));
	MUST(m->addr == buf && m->length == 10 && m->rkey == key);
	IS(0, ibv_dereg_mr(m));
	everywhere();
	close_all();
}

/* Every kind of request, to a QP of the same process. */
static void requests(void)
{
	struct ibv_qp *a, *b;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {0};
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;
	uint64_t *word;

	open_first();
	a = make_qp(IBV_QPT_RC, cq, NULL);
	b = make_qp(IBV_QPT_RC, cq, NULL);
	connect_qp(a, b->qp_num);
	connect_qp(b, a->qp_num);
	word = (uint64_t *)(buf + 8192);

	IS(0, receive(b, piece(4096, 100), 1));
	strcpy(buf, "hello");
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(7),
			.send_flags = IBV_SEND_INLINE}, piece(0, 6)));
	for (int i = 0; i < 2; i++) {
		wc = wait_wc(cq, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RECV)
			MUST(wc.byte_len == 6 && wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 7 &&
					wc.qp_num == b->qp_num);
	}
	MUST(!strcmp(buf + 4096, "hello"));

	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {(uintptr_t)buf + 5000, mr->rkey}},
			piece(0, 6)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!strcmp(buf + 5000, "hello"));
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_READ, .wr.rdma = {(uintptr_t)buf + 5000, mr->rkey}},
			piece(6000, 6)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!strcmp(buf + 6000, "hello"));
	*word = 40;
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.wr.atomic = {.remote_addr = (uintptr_t)word, .compare_add = 2, .rkey = mr->rkey}},
			piece(7000, 8)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(*word == 42 && *(uint64_t *)(buf + 7000) == 40);
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
			.wr.atomic = {(uintptr_t)word, 42, 43, mr->rkey}}, piece(7000, 8)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(*word == 43 && *(uint64_t *)(buf + 7000) == 42);

	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	IS(0, ibv_dereg_mr(mr));
	MUST(mr = ibv_reg_mr(pd, buf, SIZE, ALL | IBV_ACCESS_MW_BIND));
	bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)buf + 9000, 100, IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE};
	bind.send_flags = IBV_SEND_SIGNALED;
	IS(0, ibv_bind_mw(b, mw, &bind));
	MUST(wait_wc(cq, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {(uintptr_t)buf + 9000, mw->rkey}},
			piece(0, 6)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!strcmp(buf + 9000, "hello"));
	IS(EBUSY, ibv_dereg_mr(mr));
	IS(0, ibv_dealloc_mw(mw));

	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	wr = (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = (mw->rkey + 1) & 0xFF; /* only these bits count */
	wr.bind_mw.bind_info = bind.bind_info;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	IS(0, ibv_post_send(b, &wr, &bad));
	MUST(wait_wc(cq, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
	memset(buf + 9000, 0, 6);
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {(uintptr_t)buf + 9000, ibv_inc_rkey(mw->rkey)}}, piece(0, 6)));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!strcmp(buf + 9000, "hello"));
	IS(0, ibv_dealloc_mw(mw));

	wr = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .num_sge = -1, .send_flags = IBV_SEND_INLINE};
	IS(EINVAL, ibv_post_send(a, &wr, &bad));
	wr.num_sge = 100; /* more than max_send_sge; the list is not read */
	IS(EINVAL, ibv_post_send(a, &wr, &bad));

	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {1, mr->rkey}}, piece(0, 6)));
	wait_wc(cq, IBV_WC_REM_ACCESS_ERR);
	IS(0, post(a, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 6)));
	wait_wc(cq, IBV_WC_WR_FLUSH_ERR);

	/* A QP that is reset has no completions any more; others keep theirs. */
	IS(0, ibv_modify_qp(b, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE));
	for (uint64_t i = 0; i < 3; i++) {
		IS(0, post(a, (struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_SEND}, piece(0, 6)));
		IS(0, post(b, (struct ibv_send_wr){.wr_id = 2 + i, .opcode = IBV_WR_SEND}, piece(0, 6)));
	}
	IS(0, receive(b, piece(0, 6), 1));
	IS(0, ibv_modify_qp(a, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE));
	for (int got = 0; got < 4; got++)
		MUST(wait_wc(cq, IBV_WC_WR_FLUSH_ERR).qp_num == b->qp_num);
	IS(0, ibv_poll_cq(cq, 1, &wc));
	IS(0, ibv_destroy_qp(a));
	IS(0, ibv_destroy_qp(b));
	close_all();
}

/* ibv_wr_* and extended CQs: nothing is sent before ibv_wr_complete, or after an error. */
static void extended(void)
{
	struct ibv_cq_init_attr_ex ca = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
			IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_qp_init_attr_ex qa = {.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
				.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_poll_cq_attr pa = {0};
	struct ibv_cq_ex *ex;
	struct ibv_qp *qp, *plain;
	struct ibv_qp_ex *q;
	uint64_t before, ts;
	int err;

	open_first();
	MUST(ex = ibv_create_cq_ex(ctx, &ca));
	ca.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
	FAILS(EOPNOTSUPP, ibv_create_cq_ex(ctx, &ca));
	qa.pd = pd;
	qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(ex);
	MUST(qp = ibv_create_qp_ex(ctx, &qa));
	qa.send_ops_flags = IBV_QP_EX_WITH_TSO;
	FAILS(EOPNOTSUPP, ibv_create_qp_ex(ctx, &qa));
	plain = make_qp(IBV_QPT_RC, cq, NULL);
	MUST(!ibv_qp_to_qp_ex(plain));
	IS(0, ibv_destroy_qp(plain));
	MUST(q = ibv_qp_to_qp_ex(qp));
	connect_qp(qp, qp->qp_num);
	IS(ENOENT, ibv_start_poll(ex, &pa));
	IS(0, ibv_query_rt_values_ex(ctx, &values));
	before = (uint64_t)values.raw_clock.tv_sec * 1000000000 + (uint64_t)values.raw_clock.tv_nsec;

	ibv_wr_start(q);
	q->wr_id = 1;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 100);
	ibv_wr_set_inline_data(q, "gone", 5);
	ibv_wr_abort(q);
	ibv_wr_start(q);
	for (int i = 0; i < 5; i++) { /* one too many */
		ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 100);
		ibv_wr_set_inline_data(q, "many", 5);
	}
	IS(ENOMEM, ibv_wr_complete(q));
	ibv_wr_start(q);
	ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 100);
	ibv_wr_set_inline_data(q, buf, SIZE);
	IS(EINVAL, ibv_wr_complete(q));
	ibv_wr_start(q);
	for (int i = 2; i < 4; i++) {
		struct ibv_data_buf parts[] = {{"he", 2}, {"re", 3}};
		q->wr_id = (uint64_t)i;
		ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 100 * (size_t)i);
		ibv_wr_set_inline_data_list(q, 2, parts);
	}
	IS(0, ibv_wr_complete(q));
	for (uint64_t id = 2; id < 4; id++) {
		while ((err = ibv_start_poll(ex, &pa)) == ENOENT)
			;
		IS(0, err);
		MUST(ex->wr_id == id && ex->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(ex) == IBV_WC_RDMA_WRITE);
		ts = ibv_wc_read_completion_ts(ex);
		MUST(ts > before && ts - before < 60000000000);
		ibv_end_poll(ex);
	}
	MUST(!buf[100] && !strcmp(buf + 200, "here") && !strcmp(buf + 300, "here"));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	close_all();
}

/* make_ex makes an RC QP for ibv_wr_*, which is its own peer. */
static struct ibv_qp *make_ex(struct ibv_cq *of, uint64_t ops)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_send_sge = 1}, .pd = pd,
		.send_cq = of, .recv_cq = of, .send_ops_flags = ops,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);

	MUST(qp);
	connect_qp(qp, qp->qp_num);
	return qp;
}

static atomic_bool resized;

static void *shrink(void *of)
{
	IS(0, ibv_resize_cq(of, 2));
	atomic_store(&resized, true);
	return NULL;
}

/* building: a thread that builds requests may use the device, also while another one shrinks the CQ. */
static void building(void)
{
	struct ibv_cq *other;
	struct ibv_qp *qp;
	pthread_t t;

	open_first();
	qp = make_ex(cq, IBV_QP_EX_WITH_RDMA_WRITE);
	alarm(60);
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	MUST(!pthread_create(&t, NULL, shrink, cq));
	while (!atomic_load(&resized)) {
		MUST(other = ibv_create_cq(ctx, 1, NULL, NULL, 0));
		IS(0, ibv_destroy_cq(other));
	}
	IS(0, ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
	MUST(!pthread_join(t, NULL));
	IS(0, ibv_destroy_qp(qp));
	close_all();
}

/* binding: a window that is bound by ibv_wr_bind_mw gets the lower 8 bits of the key only, as by ibv_post_send. */
static void binding(void)
{
	struct ibv_mw_bind_info info = {.length = 100, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_ex *q;
	struct ibv_qp *qp;
	struct ibv_mw *mw;

	open_first();
	qp = make_ex(cq, IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE);
	q = ibv_qp_to_qp_ex(qp);
	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	MUST(info.mr = ibv_reg_mr(pd, buf, SIZE, ALL | IBV_ACCESS_MW_BIND));
	info.addr = (uintptr_t)buf + 100;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(q);
	ibv_wr_bind_mw(q, mw, (mw->rkey + 1) & 0xFF, &info);
	IS(0, ibv_wr_complete(q));
	MUST(wait_wc(cq, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
	ibv_wr_start(q);
	ibv_wr_rdma_write(q, ibv_inc_rkey(mw->rkey), info.addr);
	ibv_wr_set_inline_data(q, "bound", 6);
	IS(0, ibv_wr_complete(q));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!strcmp(buf + 100, "bound"));
	ibv_wr_start(q);
	ibv_wr_bind_mw(q, NULL, 0, &info);
	IS(EINVAL, ibv_wr_complete(q));
	IS(0, ibv_dealloc_mw(mw));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_dereg_mr(info.mr));
	close_all();
}

/* A channel is not readable for a CQ that is destroyed, and is for the others. */
static void channels(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *first, *second, *got;
	struct ibv_qp *a, *b;
	void *context;

	open_first();
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(first = ibv_create_cq(ctx, 4, "first", channel, 0));
	MUST(second = ibv_create_cq(ctx, 4, "second", channel, 0));
	a = loop(first);
	b = loop(second);
	for (int round = 0; round < 3; round++) {
		IS(0, ibv_req_notify_cq(second, 0));
		write_once(b);
		IS(0, ibv_get_cq_event(channel, &got, &context));
		MUST(got == second && !strcmp(context, "second"));
		ibv_ack_cq_events(second, 1);
		wait_wc(second, IBV_WC_SUCCESS);
	}
	IS(0, ibv_req_notify_cq(first, 0));
	IS(0, ibv_req_notify_cq(second, 0));
	write_once(a);
	wait_wc(first, IBV_WC_SUCCESS);
	while (!readable(channel->fd))
		;
	write_once(b);
	wait_wc(second, IBV_WC_SUCCESS);
	IS(0, ibv_destroy_qp(a));
	IS(0, ibv_destroy_cq(first));
	MUST(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	while (ibv_get_cq_event(channel, &got, &context))
		IS(EAGAIN, errno);
	MUST(got == second);
	ibv_ack_cq_events(second, 1);
	MUST(!readable(channel->fd));
	IS(-1, ibv_get_cq_event(channel, &got, &context));
	IS(EAGAIN, errno);

	IS(0, ibv_req_notify_cq(second, 0));
	write_once(b);
	wait_wc(second, IBV_WC_SUCCESS);
	while (!readable(channel->fd))
		;
	IS(0, ibv_destroy_qp(b));
	IS(0, ibv_destroy_cq(second));
	MUST(!readable(channel->fd));
	IS(0, ibv_destroy_comp_channel(channel));
	close_all();
}

/* The events of an SRQ and a QP, and their acknowledgement. */
static void events(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct ibv_qp_attr qa = {.qp_state = IBV_QPS_ERR};
	struct ibv_async_event e;
	struct ibv_recv_wr wr = {0}, *bad;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	open_first();
	MUST(!readable(ctx->async_fd));
	MUST(srq = ibv_create_srq(pd, &init));
	for (uint32_t i = 0; i < 8; i++)
		IS(0, ibv_post_srq_recv(srq, &wr, &bad));
	IS(ENOMEM, ibv_post_srq_recv(srq, &wr, &bad));
	REFUSED(EINVAL, ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 9}, IBV_SRQ_LIMIT));
	qp = make_qp(IBV_QPT_RC, cq, srq);
	IS(EBUSY, ibv_destroy_srq(srq));
	IS(EINVAL, receive(qp, piece(0, 1), 1));
	connect_qp(qp, qp->qp_num);
	IS(0, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	for (int i = 0; i < 5; i++) {
		IS(0, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 0)));
		wait_wc(cq, IBV_WC_SUCCESS);
		wait_wc(cq, IBV_WC_SUCCESS);
	}
	IS(0, ibv_get_async_event(ctx, &e));
	MUST(e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == srq);
	ibv_ack_async_event(&e);
	IS(0, ibv_modify_qp(qp, &qa, IBV_QP_STATE));
	IS(0, ibv_get_async_event(ctx, &e));
	MUST(e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && e.element.qp == qp);
	ibv_ack_async_event(&e);
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_srq(srq));

	MUST(srq = ibv_create_srq(pd, &init)); /* an event that nobody takes does not outlive its object */
	qp = make_qp(IBV_QPT_RC, cq, srq);
	connect_qp(qp, qp->qp_num);
	IS(0, ibv_modify_qp(qp, &qa, IBV_QP_STATE));
	while (!readable(ctx->async_fd))
		;
	IS(0, ibv_destroy_qp(qp));
	MUST(!readable(ctx->async_fd));
	IS(0, ibv_destroy_srq(srq));
	close_all();
}

/* limit_memory sets how much address space the process may have, and returns the limit before. */
static rlim_t limit_memory(rlim_t to)
{
	struct rlimit limit;
	rlim_t before;

	MUST(!getrlimit(RLIMIT_AS, &limit));
	before = limit.rlim_cur;
	limit.rlim_cur = to;
	MUST(!setrlimit(RLIMIT_AS, &limit));
	return before;
}

/* A queue whose new ring cannot be mapped keeps the one that it has. */
static void unmapped(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr larger = {.max_wr = 64};
	struct ibv_recv_wr wr = {0}, *bad;
	struct ibv_srq *srq;
	struct ibv_wc wc;
	rlim_t before;

	open_first();
	MUST(srq = ibv_create_srq(pd, &init));
	before = limit_memory(0);
	IS(ENOMEM, ibv_resize_cq(cq, 1000));
	IS(ENOMEM, ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR));
	limit_memory(before);
	IS(0, ibv_poll_cq(cq, 1, &wc));
	for (uint32_t i = 0; i < 8; i++)
		IS(0, ibv_post_srq_recv(srq, &wr, &bad));
	IS(ENOMEM, ibv_post_srq_recv(srq, &wr, &bad));
	IS(0, ibv_resize_cq(cq, 1000));
	IS(0, ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR));
	IS(0, ibv_post_srq_recv(srq, &wr, &bad));
	IS(0, ibv_destroy_srq(srq));
	close_all();
}

/* A CQ keeps its completions when its size changes. The CQs here are of one shard: that of the last vector. */
static void resize(void)
{
	struct ibv_qp *qp;
	struct ibv_cq *small, *beside;
	int last;

	open_first();
	last = ctx->num_comp_vectors - 1;
	MUST(small = ibv_create_cq(ctx, 7, NULL, NULL, last));
	MUST(beside = ibv_create_cq(ctx, 1, NULL, NULL, last));
	IS(7, small->cqe);
	qp = loop(small);
	for (int i = 0; i < 7; i++)
		write_once(qp);
	write_once(loop(beside)); /* on the same shard: by the time it is complete, so are the others */
	wait_wc(beside, IBV_WC_SUCCESS);
	IS(EINVAL, ibv_resize_cq(small, 3));
	IS(0, ibv_resize_cq(small, 300));
	IS(511, small->cqe);
	for (int i = 0; i < 7; i++)
		wait_wc(small, IBV_WC_SUCCESS);
	write_once(qp);
	wait_wc(small, IBV_WC_SUCCESS);
	IS(0, ibv_resize_cq(small, 2));
	IS(0, ibv_close_device(ctx)); /* with objects, which is allowed */
	unmapped();
}

/* has returns how many readable events a descriptor has. */
static int has(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0);
}

/* What a child has inherited. */
struct legacy {
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_comp_channel *channel;
	struct ibv_cq *of; /* the channel */
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
};

/* dead: objects that were inherited, and all that is to be made of them, give ENODEV. */
static void dead(const struct legacy *l)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr of = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr qp = {.qp_state = IBV_QPS_ERR};
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1};
	const union ibv_gid group = {.raw = {0xFF, 0x0E, [15] = 9}};
	struct ibv_recv_wr *bad;
	struct ibv_cq *got;
	struct ibv_wc wc;
	void *context;

	IS(ENODEV, post(l->qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 1)));
	IS(ENODEV, receive(l->qp, piece(0, 1), 1));
	IS(-1, ibv_poll_cq(cq, 1, &wc));
	IS(ENODEV, errno);
	FAILS(ENODEV, ibv_reg_mr(pd, buf, 1, 0));
	FAILS(ENODEV, ibv_create_srq(pd, &srq));
	FAILS(ENODEV, ibv_create_qp(pd, &of));
	FAILS(ENODEV, ibv_create_ah(pd, &ah));
	FAILS(ENODEV, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	FAILS(ENODEV, ibv_create_cq(ctx, 1, NULL, l->channel, 0));
	IS(ENODEV, ibv_req_notify_cq(cq, 0));
	REFUSED(ENODEV, ibv_resize_cq(cq, 1));
	REFUSED(ENODEV, ibv_modify_srq(l->srq, &srq.attr, IBV_SRQ_MAX_WR));
	REFUSED(ENODEV, ibv_query_srq(l->srq, &srq.attr));
	REFUSED(ENODEV, ibv_modify_qp(l->qp, &qp, IBV_QP_STATE));
	REFUSED(ENODEV, ibv_query_qp(l->qp, &qp, IBV_QP_STATE, &of));
	REFUSED(ENODEV, ibv_modify_qp_rate_limit(l->qp, &(struct ibv_qp_rate_limit_attr){.rate_limit = 1}));
	REFUSED(ENODEV, ibv_attach_mcast(l->qp, &group, 0));
	REFUSED(ENODEV, ibv_detach_mcast(l->qp, &group, 0));
	IS(ENODEV, ibv_post_srq_recv(l->srq, &(struct ibv_recv_wr){0}, &bad));
	IS(-1, ibv_get_cq_event(l->channel, &got, &context));
	IS(ENODEV, errno);
	ibv_ack_cq_events(l->of, 0);
}

/* destroyed: to destroy what was inherited frees the child's memory, and no more. */
static void destroyed(const struct legacy *l, struct ibv_cq *first, struct ibv_pd *domain)
{
	IS(0, ibv_destroy_ah(l->ah));
	IS(0, ibv_dealloc_mw(l->mw));
	IS(0, ibv_dereg_mr(l->mr));
	IS(0, ibv_destroy_qp(l->qp));
	IS(0, ibv_destroy_srq(l->srq));
	IS(EBUSY, ibv_destroy_comp_channel(l->channel));
	IS(0, ibv_destroy_cq(l->of));
	IS(0, ibv_destroy_comp_channel(l->channel));
	IS(0, ibv_destroy_cq(first));
	IS(0, ibv_dealloc_pd(domain));
}

/* anew: an inherited context serves what the child makes itself. Handles are those of the parent's objects, too. */
static void anew(const struct legacy *l)
{
	int number = ctx->async_fd, flags = fcntl(number, F_GETFL), other;
	struct ibv_cq *first = cq;
	struct ibv_pd *domain = pd;
	struct ibv_mr *whole = mr;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_async_event e;
	struct ibv_qp *qp;
	union ibv_gid gid;

	MUST((other = open("/dev/null", O_RDONLY)) >= 0);
	MUST(other != number && flags & O_NONBLOCK && !has(number));
	IS(-1, ibv_get_async_event(ctx, &e));
	IS(EAGAIN, errno);
	IS(number, ctx->async_fd);
	IS(0, ibv_query_device(ctx, &device));
	IS(0, ibv_query_port(ctx, 1, &port));
	IS(0, ibv_query_gid(ctx, 1, 0, &gid));
	MUST(pd = ibv_alloc_pd(ctx));
	MUST(mr = ibv_reg_mr(pd, buf, SIZE, ALL));
	MUST(cq = ibv_create_cq(ctx, 16, NULL, NULL, 0));
	qp = loop(cq);
	write_once(qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	FAILS(ENODEV, ibv_create_cq(ctx, 1, NULL, l->channel, 0));
	IS(0, ibv_dereg_mr(whole));
	destroyed(l, first, domain);
	write_once(qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, has(number));
	IS(0, ibv_destroy_qp(qp));
	close_all();
	IS(0, close(other));
}

/* A forked child has no objects of its parent, and disturbs nothing. That threads of the parent have the mutexes which the
 * ABI shows does not hold it up. */
static void forked(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_ah_attr route = {.is_global = 1, .port_num = 1, .grh.sgid_index = 0};
	struct legacy l;
	pid_t child;
	int status;

	open_first();
	IS(0, ibv_fork_init());
	IS(0, ibv_query_gid(ctx, 1, 0, &route.grh.dgid));
	l.qp = loop(cq);
	MUST(l.srq = ibv_create_srq(pd, &init));
	MUST(l.channel = ibv_create_comp_channel(ctx));
	MUST(l.of = ibv_create_cq(ctx, 1, NULL, l.channel, 0));
	MUST(l.mr = ibv_reg_mr(pd, buf, 1, 0));
	MUST(l.mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	MUST(l.ah = ibv_create_ah(pd, &route));
	MUST(!fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK));
	pthread_mutex_t *held[] = {&ctx->mutex, &l.qp->mutex, &l.srq->mutex, &l.of->mutex, &cq->mutex};
	for (int i = 0; i < 5; i++)
		MUST(!pthread_mutex_lock(held[i]));
	MUST((child = fork()) >= 0);
	if (!child) {
		alarm(60);
		dead(&l);
		anew(&l);
		exit(0);
	}
	for (int i = 0; i < 5; i++)
		MUST(!pthread_mutex_unlock(held[i]));
	for (int i = 0; i < 100; i++) {
		write_once(l.qp);
		wait_wc(cq, IBV_WC_SUCCESS);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	write_once(l.qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, ibv_dereg_mr(mr));
	destroyed(&l, cq, pd);
	free(buf);
	IS(0, ibv_close_device(ctx));
}

static void *wait_event(void *channel)
{
	struct ibv_cq *got;
	void *context;

	IS(-1, ibv_get_cq_event(channel, &got, &context));
	IS(EIO, errno);
	return NULL;
}

/* The end of the daemon: one event, and all fails that is not an end itself. It says "ready" before. When there is another
 * daemon, the same process uses that. */
static void end(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_async_event e;
	struct ibv_cq *of;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	pthread_t waiter;
	int n;

	open_first();
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(of = ibv_create_cq(ctx, 4, NULL, channel, 0));
	qp = loop(of);
	MUST(!pthread_create(&waiter, NULL, wait_event, channel));
	puts("ready");
	fflush(stdout);
	while (!(n = ibv_poll_cq(of, 1, &wc)))
		;
	IS(-1, n);
	IS(0, ibv_get_async_event(ctx, &e));
	IS(IBV_EVENT_DEVICE_FATAL, (int)e.event_type);
	ibv_ack_async_event(&e);
	IS(-1, ibv_get_async_event(ctx, &e));
	IS(EIO, errno);
	IS(EIO, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 1)));
	IS(EIO, receive(qp, piece(0, 1), 1));
	IS(EIO, ibv_req_notify_cq(of, 0));
	FAILS(EIO, ibv_alloc_pd(ctx));
	MUST(!pthread_join(waiter, NULL));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_cq(of));
	IS(0, ibv_destroy_comp_channel(channel));
	close_all();

	for (n = 0; !n; usleep(1000)) {
		struct ibv_device **list = ibv_get_device_list(&n);
		ibv_free_device_list(list);
	}
	open_first();
	qp = loop(cq);
	write_once(qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, ibv_destroy_qp(qp));
	close_all();
}

/* A daemon that is there and refuses: the errno. */
static void refused(void)
{
	int n = 1;

	errno = 0;
	MUST(!ibv_get_device_list(&n) && !n);
	printf("errno %d\n", errno);
}

/* Calls that make no sense, and would not harm a program over rdma_rxe either. */
static void mistakes(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	struct ibv_qp *rc, *ud;
	struct ibv_srq *srq;
	struct ibv_wc wc;
	union ibv_gid group = {.raw = {0xFF, 0x0E, [15] = 9}}, host;
	union ibv_gid v4 = {.raw = {[10] = 0xFF, 0xFF, 239, 1, 1, 9}}; /* 239.1.1.9 */

	open_first();
	IS(0, ibv_query_gid(ctx, 1, 0, &host));
	rc = make_qp(IBV_QPT_RC, cq, NULL);
	ud = make_qp(IBV_QPT_UD, cq, NULL);
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT)); /* one is missing */
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
			IBV_QP_QKEY)); /* one too many */
	a.port_num = 2;
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.port_num = 0;
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_CAP));
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_ALT_PATH));
	a = (struct ibv_qp_attr){.qp_state = 77};
	REFUSED(EINVAL, ibv_modify_qp(rc, &a, IBV_QP_STATE));
	REFUSED(EINVAL, ibv_attach_mcast(rc, &group, 0));
	REFUSED(EINVAL, ibv_attach_mcast(ud, &host, 0));
	REFUSED(EINVAL, ibv_detach_mcast(ud, &group, 0));
	IS(0, ibv_attach_mcast(ud, &v4, 0));
	IS(0, ibv_attach_mcast(ud, &v4, 0)); /* which changes nothing */
	REFUSED(EBUSY, ibv_destroy_qp(ud));
	IS(0, ibv_detach_mcast(ud, &v4, 0));
	connect_qp(rc, rc->qp_num);
	IS(EINVAL, ibv_post_send(rc, NULL, &bad_send));
	IS(EINVAL, ibv_post_send(rc, &(struct ibv_send_wr){.opcode = 77}, NULL));
	IS(EINVAL, ibv_post_recv(rc, NULL, &bad_recv));
	IS(EINVAL, ibv_post_recv(rc, &(struct ibv_recv_wr){.num_sge = -1}, NULL));
	IS(0, ibv_poll_cq(cq, 0, &wc));
	MUST(srq = ibv_create_srq(pd, &srq_init));
	REFUSED(EINVAL, ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 1 << 30}, IBV_SRQ_MAX_WR));
	IS(0, ibv_destroy_srq(srq));
	IS(0, ibv_destroy_qp(rc));
	IS(0, ibv_destroy_qp(ud));
	close_all();
}

/* XRC: a domain that two contexts share by a file, and a target that both have open. */
static void xrc(void)
{
	struct ibv_xrcd_init_attr xa = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
	struct ibv_qp_init_attr_ex qa = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_open_attr oa = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			IBV_QP_OPEN_ATTR_TYPE, .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex sa = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
				IBV_SRQ_INIT_ATTR_CQ};
	struct ibv_context *other;
	struct ibv_xrcd *mine, *theirs;
	struct ibv_qp *target, *again;
	struct ibv_srq *srq;
	uint32_t num;
	int fd;

	open_first();
	FAILS(EINVAL, ibv_open_xrcd(ctx, &xa));
	xa.oflags = O_CREAT;
	MUST(mine = ibv_open_xrcd(ctx, &xa));
	IS(0, ibv_close_xrcd(mine));
	MUST((fd = memfd_create("domain", 0)) >= 0);
	xa.fd = fd;
	xa.oflags = 0;
	MUST(!ibv_open_xrcd(ctx, &xa));
	xa.oflags = O_CREAT | O_EXCL;
	MUST(mine = ibv_open_xrcd(ctx, &xa));
	MUST(!ibv_open_xrcd(ctx, &xa));
	MUST(other = ibv_open_device(ctx->device));
	xa.oflags = O_CREAT;
	MUST(theirs = ibv_open_xrcd(other, &xa));
	qa.xrcd = mine;
	MUST(target = ibv_create_qp_ex(ctx, &qa));
	oa.qp_num = target->qp_num;
	oa.xrcd = theirs;
	MUST(again = ibv_open_qp(other, &oa));
	connect_qp(again, 77);
	IS(0, ibv_destroy_qp(target));
	IS(0, ibv_destroy_qp(again));
	MUST(!ibv_open_qp(other, &oa));
	sa.pd = pd;
	sa.xrcd = mine;
	sa.cq = cq;
	MUST(srq = ibv_create_srq_ex(ctx, &sa));
	IS(0, ibv_get_srq_num(srq, &num));
	MUST(num);
	MUST(ibv_close_xrcd(mine));
	IS(0, ibv_destroy_srq(srq));
	IS(0, ibv_close_xrcd(mine));
	IS(0, ibv_close_xrcd(theirs));
	IS(0, ibv_close_device(other));
	close_all();
}

enum { ROUNDS = 300 };

static atomic_bool stop_asking;

static void *ask_always(void *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	while (!atomic_load(&stop_asking))
		IS(0, ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return NULL;
}

/* The state that posts are judged by is that of the last change, though other threads query the QP. */
static void states(void)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	pthread_t asking[2];
	struct ibv_qp *qp;

	open_first();
	qp = loop(cq);
	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&asking[i], NULL, ask_always, qp));
	for (int i = 0; i < ROUNDS; i++) {
		IS(0, ibv_modify_qp(qp, &reset, IBV_QP_STATE));
		connect_qp(qp, qp->qp_num);
		write_once(qp);
		wait_wc(cq, IBV_WC_SUCCESS);
	}
	atomic_store(&stop_asking, true);
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(asking[i], NULL));
	IS(0, ibv_destroy_qp(qp));
	close_all();
}

/* What a datagram says of its sender: enough to answer. */
static void datagrams(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1,
			.grh = {.hop_limit = 3, .flow_label = ~0u, .traffic_class = 8}};
	struct ibv_ah *ah, *back;
	struct ibv_wc wc;
	struct ibv_qp *qp;

	open_first();
	qp = make_qp(IBV_QPT_UD, cq, NULL);
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	IS(0, ibv_query_gid(ctx, 1, 0, &to.grh.dgid));
	MUST(ah = ibv_create_ah(pd, &to));
	for (int round = 0; round < 2; round++) {
		IS(0, receive(qp, piece(4096, 200), 1));
		IS(0, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND, .wr.ud = {ah, qp->qp_num, 0x11}},
				piece(0, 50)));
		wc = wait_wc(cq, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND)
			wc = wait_wc(cq, IBV_WC_SUCCESS);
		MUST(wc.byte_len == 90 && wc.src_qp == qp->qp_num && wc.wc_flags & IBV_WC_GRH && wc.sl);
		IS(0, ibv_init_ah_from_wc(ctx, 1, &wc, (void *)(buf + 4096), &to));
		MUST(to.is_global && to.grh.traffic_class == 8 && to.grh.sgid_index == 0);
		MUST(back = ibv_create_ah_from_wc(pd, &wc, (void *)(buf + 4096), 1));
		IS(0, ibv_destroy_ah(ah));
		ah = back;
	}
	IS(0, ibv_destroy_ah(ah));
	IS(EINVAL, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE}, piece(0, 50)));
	IS(EINVAL, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, piece(0, 50)));
	IS(0, ibv_destroy_qp(qp));
	close_all();
}

/* ignored: what the man pages say is not looked at may be anything. */
static void ignored(void)
{
	enum { ANYTHING = 0xA5 };
	struct ibv_xrcd_init_attr xa = {.fd = -1, .oflags = O_CREAT, .comp_mask = IBV_XRCD_INIT_ATTR_FD |
			IBV_XRCD_INIT_ATTR_OFLAGS};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET}, a;
	struct ibv_srq_init_attr_ex sa;
	struct ibv_qp_init_attr_ex ex;
	struct ibv_qp_init_attr qa;
	struct ibv_cq_init_attr_ex ca;
	struct ibv_ah_attr ah;
	struct ibv_cq_ex *cq_ex;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *one;
	struct ibv_ah *to;

	open_first();
	memset(&ca, ANYTHING, sizeof(ca));
	ca.cqe = 4;
	ca.channel = NULL;
	ca.comp_vector = 0;
	ca.wc_flags = 0;
	ca.comp_mask = 0;
	MUST(cq_ex = ibv_create_cq_ex(ctx, &ca));
	memset(&sa, ANYTHING, sizeof(sa)); /* xrcd, cq, max_num_tags, tm_cap */
	sa.attr = (struct ibv_srq_attr){4, 1, ~0u};
	sa.pd = pd;
	sa.comp_mask = IBV_SRQ_INIT_ATTR_PD;
	MUST(srq = ibv_create_srq_ex(ctx, &sa));
	memset(&qa, ANYTHING, sizeof(qa)); /* cap of receives */
	qa.send_cq = qa.recv_cq = cq;
	qa.srq = srq;
	qa.qp_type = IBV_QPT_RC;
	qa.cap.max_send_wr = qa.cap.max_send_sge = 1;
	qa.cap.max_inline_data = 0;
	MUST(qp = ibv_create_qp(pd, &qa));
	memset(&a, ANYTHING, sizeof(a));
	a.qp_state = IBV_QPS_INIT;
	a.pkey_index = 0;
	a.port_num = 1;
	a.qp_access_flags = 0;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	memset(&a, ANYTHING, sizeof(a)); /* dlid, sl, src_path_bits, static_rate of the address, too */
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_256;
	a.dest_qp_num = 77;
	a.max_dest_rd_atomic = a.min_rnr_timer = 1;
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	a.ah_attr.grh.sgid_index = 0;
	IS(0, ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid));
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	ah = a.ah_attr;
	MUST(to = ibv_create_ah(pd, &ah));
	MUST(xrcd = ibv_open_xrcd(ctx, &xa));
	for (int type = IBV_QPT_XRC_SEND; type <= IBV_QPT_XRC_RECV; type++) {
		memset(&ex, ANYTHING, sizeof(ex));
		ex.qp_type = (enum ibv_qp_type)type;
		ex.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		ex.xrcd = xrcd;
		if (type == IBV_QPT_XRC_SEND) { /* else PD, CQs, SRQ and queues */
			ex.comp_mask = IBV_QP_INIT_ATTR_PD;
			ex.pd = pd;
			ex.send_cq = cq;
			ex.cap.max_send_wr = ex.cap.max_send_sge = 1;
			ex.cap.max_inline_data = 0;
		}
		MUST(one = ibv_create_qp_ex(ctx, &ex));
		IS(0, ibv_modify_qp(one, &reset, IBV_QP_STATE));
		IS(0, ibv_destroy_qp(one));
	}
	IS(0, ibv_close_xrcd(xrcd));
	IS(0, ibv_destroy_ah(to));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_srq(srq));
	IS(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)));
	close_all();
}

/* advice: ibv_advise_mr looks at each element. */
static void advice(void)
{
	const enum ib_uverbs_advise_mr_advice READ = IBV_ADVISE_MR_ADVICE_PREFETCH,
		WRITE = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, PRESENT = (enum ib_uverbs_advise_mr_advice)2;
	char *p = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *whole, *read_only, *plain;
	struct ibv_sge e[2];
	struct ibv_pd *other;

	open_first();
	MUST(p != MAP_FAILED && !munmap(p + 4096, 4096));
	MUST(other = ibv_alloc_pd(ctx));
	MUST(whole = ibv_reg_mr(pd, p, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
	MUST(read_only = ibv_reg_mr(pd, p, 4096, IBV_ACCESS_ON_DEMAND));
	MUST(plain = ibv_reg_mr(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE));
	e[0] = e[1] = (struct ibv_sge){(uintptr_t)p, 4096, whole->lkey};
	IS(0, ibv_advise_mr(pd, WRITE, IBV_ADVISE_MR_FLAG_FLUSH, e, 2));
	IS(EINVAL, ibv_advise_mr(pd, READ, 2, e, 1));
	IS(EINVAL, ibv_advise_mr(pd, READ, 0, e, 0));
	IS(EOPNOTSUPP, ibv_advise_mr(pd, (enum ib_uverbs_advise_mr_advice)77, 0, e, 1));
	IS(EPERM, ibv_advise_mr(other, READ, 0, e, 1));
	e[1].length = 4097; /* to a page that is not there */
	IS(EFAULT, ibv_advise_mr(pd, READ, 0, e, 2));
	IS(0, ibv_advise_mr(pd, PRESENT, 0, e, 2));
	e[1].length = 8193;
	IS(EFAULT, ibv_advise_mr(pd, PRESENT, 0, e, 2));
	e[1].addr--;
	IS(EFAULT, ibv_advise_mr(pd, PRESENT, 0, e, 2));
	e[1] = (struct ibv_sge){(uintptr_t)p, 1, read_only->lkey};
	IS(0, ibv_advise_mr(pd, READ, 0, e, 2));
	IS(EPERM, ibv_advise_mr(pd, WRITE, 0, e, 2));
	e[1].lkey = plain->lkey;
	IS(EINVAL, ibv_advise_mr(pd, READ, 0, e, 2));
	IS(0, ibv_dereg_mr(plain));
	IS(EFAULT, ibv_advise_mr(pd, READ, 0, e, 2));
	IS(0, ibv_dereg_mr(read_only));
	IS(0, ibv_dereg_mr(whole));
	IS(0, ibv_dealloc_pd(other));
	MUST(!munmap(p, 4096));
	close_all();
}

/* move gives a descriptor another number, which the program puts into the struct, and another file the number before. */
static void move(int *fd)
{
	int number = dup(*fd), other = open("/dev/null", O_RDWR);

	MUST(number >= 0 && other >= 0);
	MUST(dup2(other, *fd) == *fd && !close(other));
	*fd = number;
}

/* moved: programs may move the descriptors of channels and of asynchronous events. */
static void moved(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_async_event event;
	struct ibv_cq *q, *got;
	void *context;
	struct ibv_qp *qp;
	int before;

	open_first();
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(q = ibv_create_cq(ctx, 4, NULL, channel, 0));
	qp = loop(q);
	for (int i = 0; i < 3; i++) {
		before = channel->fd;
		move(&channel->fd);
		IS(0, ibv_req_notify_cq(q, 0));
		write_once(qp);
		IS(0, ibv_get_cq_event(channel, &got, &context));
		MUST(got == q);
		ibv_ack_cq_events(q, 1);
		wait_wc(q, IBV_WC_SUCCESS);
	}
	move(&ctx->async_fd);
	MUST(!fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK));
	IS(-1, ibv_get_async_event(ctx, &event));
	IS(EAGAIN, errno);
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_cq(q));
	move(&channel->fd);
	IS(0, ibv_destroy_comp_channel(channel));
	MUST(fcntl(before, F_GETFD) >= 0); /* it is the program's */
	close_all();
}

/* descriptors: a process that has no more of them may still use its device. */
static void descriptors(void)
{
	struct ibv_comp_channel *some[64], *channel;
	struct rlimit few = {64, 64};
	int n = 0;

	open_first();
	MUST(!setrlimit(RLIMIT_NOFILE, &few));
	while ((channel = ibv_create_comp_channel(ctx)))
		some[n++] = channel;
	IS(EMFILE, errno);
	MUST(n > 10);
	IS(0, ibv_destroy_comp_channel(some[--n]));
	MUST(some[n++] = ibv_create_comp_channel(ctx));
	while (n > 0)
		IS(0, ibv_destroy_comp_channel(some[--n]));
	close_all();
}

/* reloaded: a device whose limits have changed is the same one, and has the new limits when it is opened again. It says
 * the limit, and goes on when its input ends. */
static void reloaded(void)
{
	struct ibv_device_attr d;

	open_first();
	IS(0, ibv_query_device(ctx, &d));
	printf("max_cq %d\n", d.max_cq);
	fflush(stdout);
	while (getchar() != EOF)
		;
	listed_again();
	close_all();
	open_first();
	IS(0, ibv_query_device(ctx, &d));
	printf("max_cq %d\n", d.max_cq);
	close_all();
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"sizes", sizes}, {"beyond", beyond}, {"arguments", arguments}, {"limits", limits}, {"memory", memory}, {"requests", requests}, {"extended", extended},
			{"binding", binding}, {"building", building},
			{"channels", channels},
	{"events", events},	  {"resize", resize}, {"forked", forked},     {"end", end},	      {"xrc", xrc},
	{"datagrams", datagrams}, {"states", states}, {"mistakes", mistakes}, {"refused", refused},
	{"ignored", ignored},	  {"advice", advice}, {"moved", moved},	      {"descriptors", descriptors},
	{"reloaded", reloaded},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
		if (argc == 1)
			puts(cases[i].name);
	}
	return argc != 1;
}
