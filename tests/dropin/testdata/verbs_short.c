/*
 * Short payloads travel in the work request, although the program does not ask for that. `verbs_short CASE` compares what
 * becomes of them with what becomes of the same bytes in a region on demand, which the daemon always reads itself. Which
 * way a request went is read in the send ring (go doc ./qp/ring).
 */
#include "verbs_common.h"

enum { PAGE = 4096, MAX_SGE = 4, TO = 32 << 10, ROOM = 8 << 10, IMM = 0x1234, FAR = 0x100000 };

static struct ibv_mr *on_demand; /* the same memory as mr */
static struct ibv_ah *ah;
static struct ibv_srq *srq;
static uint32_t srqn;

/* Two QPs, and how requests are posted to the first one. */
struct pair {
	enum ibv_qp_type type;
	struct ibv_qp *a, *b;
	bool built; /* by ibv_wr_* */
	uint32_t max_inline;
};

struct request {
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	uint32_t key; /* to invalidate */
	int num;
	struct ibv_sge list[MAX_SGE];
};

struct outcome {
	bool in_slot;
	struct ibv_wc send, recv;
	char bytes[ROOM];
};

static uint64_t last_id = 1000;

/* in_ring looks for a request in a mapping: it returns its flags, or -1. */
static int in_ring(const char *at, size_t size, uint64_t id)
{
	const uint32_t *head = (const uint32_t *)at;

	if (size < 256 || head[0] != 0x474E4952 || ((const uint16_t *)at)[3] != 1)
		return -1;
	for (uint32_t i = 0; i < head[2] && 256 + (i + 1) * (size_t)head[3] <= size; i++) {
		const char *slot = at + 256 + i * (size_t)head[3];
		if (!memcmp(slot, &id, sizeof(id)))
			return slot[9];
	}
	return -1;
}

/* in_slot reports whether the payload of a request was in its slot. */
static bool in_slot(uint64_t id)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int flags = -1;

	MUST(f);
	while (flags < 0 && fgets(line, sizeof(line), f)) {
		unsigned long start, end;
		if (strstr(line, " rw-s ") && strstr(line, "memfd:") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			flags = in_ring((const char *)start, end - start, id);
	}
	fclose(f);
	MUST(flags >= 0);
	return flags & IBV_SEND_INLINE;
}

static uint64_t ops(enum ibv_qp_type type)
{
	uint64_t all = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type != IBV_QPT_UD)
		all |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		all |= IBV_QP_EX_WITH_SEND_WITH_INV;
	return all;
}

static struct ibv_qp *sender(struct ibv_pd *of, enum ibv_qp_type type, uint32_t depth, uint32_t *max_inline)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = type, .send_cq = cq, .recv_cq = cq, .pd = of,
		.cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = MAX_SGE, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = ops(type)};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);

	MUST(qp);
	*max_inline = a.cap.max_inline_data;
	return qp;
}

static void connect_ud(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};

	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

/* xrc_target makes a target with an SRQ, once. */
static struct ibv_qp *xrc_target(void)
{
	struct ibv_xrcd_init_attr xa = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
		.oflags = O_CREAT};
	static struct ibv_xrcd *domain;
	struct ibv_qp_init_attr_ex qa = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_srq_init_attr_ex sa = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd,
		.cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
				IBV_SRQ_INIT_ATTR_CQ};

	if (!domain) {
		MUST(domain = sa.xrcd = ibv_open_xrcd(ctx, &xa));
		MUST(srq = ibv_create_srq_ex(ctx, &sa));
		IS(0, ibv_get_srq_num(srq, &srqn));
	}
	qa.xrcd = domain;
	return ibv_create_qp_ex(ctx, &qa);
}

static struct pair make_pair(struct ibv_pd *of, enum ibv_qp_type type)
{
	struct pair p = {.type = type};

	p.a = sender(of, type, DEPTH, &p.max_inline);
	p.b = type == IBV_QPT_XRC_SEND ? xrc_target() : make_qp(type, cq, NULL);
	MUST(p.b);
	if (type == IBV_QPT_UD) {
		connect_ud(p.a);
		connect_ud(p.b);
	} else {
		connect_qp(p.a, p.b->qp_num);
		connect_qp(p.b, p.a->qp_num);
	}
	return p;
}

static void end_pair(struct pair *p)
{
	IS(0, ibv_destroy_qp(p->a));
	IS(0, ibv_destroy_qp(p->b));
}

static void build(struct pair *p, const struct request *r, uint64_t id)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(p->a);
	uint64_t to = (uintptr_t)buf + TO;

	MUST(q);
	ibv_wr_start(q);
	q->wr_id = id;
	q->wr_flags = r->flags | IBV_SEND_SIGNALED;
	if (r->opcode == IBV_WR_SEND)
		ibv_wr_send(q);
	else if (r->opcode == IBV_WR_SEND_WITH_IMM)
		ibv_wr_send_imm(q, htobe32(IMM));
	else if (r->opcode == IBV_WR_SEND_WITH_INV)
		ibv_wr_send_inv(q, r->key);
	else if (r->opcode == IBV_WR_RDMA_WRITE)
		ibv_wr_rdma_write(q, mr->rkey, to);
	else
		ibv_wr_rdma_write_imm(q, mr->rkey, to, htobe32(IMM));
	if (p->type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(q, ah, p->b->qp_num, 0x11);
	if (p->type == IBV_QPT_XRC_SEND)
		ibv_wr_set_xrc_srqn(q, srqn);
	ibv_wr_set_sge_list(q, (size_t)r->num, r->list);
	IS(0, ibv_wr_complete(q));
}

static void post_one(struct pair *p, struct request *r, uint64_t id)
{
	struct ibv_send_wr wr = {.wr_id = id, .opcode = r->opcode, .send_flags = r->flags | IBV_SEND_SIGNALED,
		.sg_list = r->list, .num_sge = r->num, .imm_data = htobe32(IMM)}, *bad;

	if (r->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = r->key;
	wr.wr.rdma.remote_addr = (uintptr_t)buf + TO;
	wr.wr.rdma.rkey = mr->rkey;
	if (p->type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = p->b->qp_num;
		wr.wr.ud.remote_qkey = 0x11;
	}
	if (p->type == IBV_QPT_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = srqn;
	IS(0, ibv_post_send(p->a, &wr, &bad));
}

static struct ibv_wc next_wc(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	IS(1, n);
	return wc;
}

/* settle waits for WRITEs of a service that does not acknowledge them: an empty SEND comes after them. */
static void settle(struct pair *p)
{
	struct ibv_recv_wr recv = {.wr_id = 9}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 10, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	IS(0, ibv_post_recv(p->b, &recv, &bad_recv));
	IS(0, ibv_post_send(p->a, &send, &bad));
	wait_wc(cq, IBV_WC_SUCCESS);
	wait_wc(cq, IBV_WC_SUCCESS);
}

/* carry_out posts a request, and a receive if it takes one. */
static struct outcome carry_out(struct pair *p, struct request r)
{
	struct ibv_sge into = piece(TO, ROOM);
	struct ibv_recv_wr recv = {.wr_id = 9, .sg_list = &into, .num_sge = 1}, *bad;
	bool takes = r.opcode != IBV_WR_RDMA_WRITE, sent = false, received = !takes;
	struct outcome o = {0};
	uint64_t id = ++last_id;

	memset(buf + TO, 0, ROOM);
	if (takes)
		IS(0, p->type == IBV_QPT_XRC_SEND ? ibv_post_srq_recv(srq, &recv, &bad) :
				ibv_post_recv(p->b, &recv, &bad));
	if (p->built)
		build(p, &r, id);
	else
		post_one(p, &r, id);
	while (!sent || !received) {
		struct ibv_wc wc = next_wc();
		if (wc.wr_id == 9) {
			o.recv = wc;
			received = true;
			continue;
		}
		MUST(wc.wr_id == id);
		o.send = wc;
		sent = true;
		received |= wc.status != IBV_WC_SUCCESS;
	}
	o.in_slot = in_slot(id);
	if (p->type == IBV_QPT_UC && !takes)
		settle(p);
	memcpy(o.bytes, buf + TO, ROOM);
	return o;
}

static void same_wc(const struct ibv_wc *a, const struct ibv_wc *b)
{
	IS((int)b->status, (int)a->status);
	if (a->status != IBV_WC_SUCCESS)
		return; /* nothing else is defined */
	IS((int)b->opcode, (int)a->opcode);
	IS((int)b->byte_len, (int)a->byte_len);
	IS((int)b->wc_flags, (int)a->wc_flags);
	IS((int)b->qp_num, (int)a->qp_num);
	if (!(a->wc_flags & IBV_WC_WITH_INV))
		IS((int)b->imm_data, (int)a->imm_data);
}

/* alike compares a request with the same from memory on demand, whose addresses are those of the process. */
static void alike(struct pair *p, struct request r, struct request reference, bool short_one)
{
	static struct outcome want, got;

	got = carry_out(p, r);
	want = carry_out(p, reference);
	IS(short_one, got.in_slot);
	IS(false, want.in_slot);
	same_wc(&got.send, &want.send);
	same_wc(&got.recv, &want.recv);
	IS(0, memcmp(got.bytes, want.bytes, ROOM));
}

/* sgl makes a request of pieces at 100, 1100, 2100 ... */
static struct request sgl(enum ibv_wr_opcode opcode, uint32_t lkey, int num, const uint32_t *lengths)
{
	struct request r = {.opcode = opcode, .num = num};

	for (int i = 0; i < num; i++)
		r.list[i] = (struct ibv_sge){(uintptr_t)buf + 100 + 1000 * (uintptr_t)i, lengths[i], lkey};
	return r;
}

/* bind_window binds a window of type 2 to b, for a peer to invalidate. */
static uint32_t bind_window(struct pair *p, struct ibv_mw *mw)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = mw->rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)buf, 100, IBV_ACCESS_REMOTE_WRITE};
	IS(0, ibv_post_send(p->b, &wr, &bad));
	wait_wc(cq, IBV_WC_SUCCESS);
	return mw->rkey;
}

static void start(void)
{
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 3}};

	open_first();
	IS(0, ibv_dereg_mr(mr));
	MUST(mr = ibv_reg_mr(pd, buf, SIZE, ALL | IBV_ACCESS_MW_BIND));
	MUST(on_demand = ibv_reg_mr(pd, buf, SIZE, ALL | IBV_ACCESS_ON_DEMAND));
	for (int i = 0; i < SIZE; i++)
		buf[i] = (char)(i * 7 + i / 251);
	IS(0, ibv_query_gid(ctx, 1, 0, &to.grh.dgid));
	MUST(ah = ibv_create_ah(pd, &to));
}

static void lengths(struct pair *p, enum ibv_wr_opcode opcode)
{
	const uint32_t most = p->max_inline;
	const struct {
		int num;
		uint32_t lengths[MAX_SGE];
		bool short_one;
	} all[] = {
		{1, {8}, true}, {1, {1}, true}, {4, {1, 0, 5, 3}, true}, {2, {0, 9}, true}, {1, {64}, true},
		{1, {most}, true}, {2, {most - 10, 10}, true},
		{1, {most + 1}, false}, {2, {most, 1}, false}, {1, {0}, false}, {0, {0}, false}, {1, {1000}, false},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		alike(p, sgl(opcode, mr->lkey, all[i].num, all[i].lengths),
				sgl(opcode, on_demand->lkey, all[i].num, all[i].lengths), all[i].short_one);
}

/* Every request that takes a payload to a peer, of every service. */
static void opcodes(void)
{
	const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND};
	const enum ibv_wr_opcode all[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM};
	struct ibv_mw *mw;
	struct pair p;

	start();
	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
		p = make_pair(pd, types[t]);
		for (int built = 0; built < 2; built++) {
			p.built = built;
			for (int i = 0; i < (types[t] == IBV_QPT_UD ? 2 : 4); i++)
				lengths(&p, all[i]);
		}
		end_pair(&p);
	}
	p = make_pair(pd, IBV_QPT_RC);
	for (int built = 0; built < 2; built++) {
		struct request r = sgl(IBV_WR_SEND_WITH_INV, mr->lkey, 2, (uint32_t[]){30, 12});
		static struct outcome o;
		p.built = built;
		r.key = bind_window(&p, mw);
		o = carry_out(&p, r);
		MUST(o.in_slot && o.recv.wc_flags & IBV_WC_WITH_INV && o.recv.invalidated_rkey == r.key);
		MUST(o.recv.byte_len == 42 && !memcmp(o.bytes, buf + 100, 30) && !memcmp(o.bytes + 30, buf + 1100, 12));
	}
	end_pair(&p);
}

/* refused checks a request that the daemon must refuse, and that is not inline therefore. */
static void refused(struct ibv_pd *of, struct ibv_sge e)
{
	const enum ibv_wr_opcode all[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE};

	for (int i = 0; i < 8; i++) {
		struct request r = {.opcode = all[i & 1], .num = 1, .list = {e}};
		struct pair p = make_pair(of, IBV_QPT_RC);
		static struct outcome o;

		if (i & 2) { /* behind a piece that is in order */
			r.list[1] = e;
			r.list[0] = piece(0, 4);
			r.num = 2;
		}
		p.built = i & 4;
		o = carry_out(&p, r);
		IS(IBV_WC_LOC_PROT_ERR, (int)o.send.status);
		MUST(!o.in_slot);
		end_pair(&p);
		for (struct ibv_wc wc; ibv_poll_cq(cq, 1, &wc) > 0;) /* receives that were flushed */
			;
	}
}

/* Keys and ranges that do not fit. */
static void keys(void)
{
	struct ibv_pd *other;
	struct ibv_context *elsewhere;
	struct ibv_mr *m;
	struct ibv_mw *mw;
	struct pair p;
	uint64_t at;

	start();
	at = (uintptr_t)buf;
	refused(pd, (struct ibv_sge){at, 8, mr->lkey ^ 1});
	refused(pd, (struct ibv_sge){at + SIZE - 4, 8, mr->lkey});
	refused(pd, (struct ibv_sge){at + SIZE, 1, mr->lkey});
	refused(pd, (struct ibv_sge){at - 4, 8, mr->lkey});
	refused(pd, (struct ibv_sge){UINT64_MAX - 3, 8, mr->lkey});
	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	refused(pd, (struct ibv_sge){at, 8, mw->rkey});

	MUST(other = ibv_alloc_pd(ctx));
	MUST(m = ibv_reg_mr(other, buf, SIZE, ALL));
	refused(pd, (struct ibv_sge){at, 8, m->lkey});
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	p = make_pair(pd, IBV_QPT_RC);
	alike(&p, sgl(IBV_WR_SEND, m->lkey, 1, (uint32_t[]){8}),
			sgl(IBV_WR_SEND, on_demand->lkey, 1, (uint32_t[]){8}), true);
	end_pair(&p);
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	refused(pd, (struct ibv_sge){at, 8, m->lkey});
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	uint32_t closed = m->lkey;
	IS(0, ibv_dereg_mr(m));
	refused(pd, (struct ibv_sge){at, 8, closed});

	MUST(elsewhere = ibv_open_device(ctx->device));
	MUST(m = ibv_reg_mr(ibv_alloc_pd(elsewhere), buf, SIZE, ALL));
	refused(pd, (struct ibv_sge){at, 8, m->lkey});

	MUST(m = ibv_reg_mr_iova(pd, buf, SIZE, FAR, ALL));
	refused(pd, (struct ibv_sge){at, 8, m->lkey});
	refused(pd, (struct ibv_sge){FAR - 1, 8, m->lkey});
	MUST(m = ibv_reg_mr(pd, buf, SIZE, ALL | IBV_ACCESS_ZERO_BASED));
	refused(pd, (struct ibv_sge){at, 8, m->lkey});
	refused(pd, (struct ibv_sge){SIZE - 7, 8, m->lkey});
}

/* named has a region whose first byte, buf + 64, is called first. */
static void named(struct pair *p, struct ibv_mr *m, uint64_t first)
{
	for (uint32_t n = 1; n < 200; n += 66) {
		struct request r = {.opcode = IBV_WR_SEND, .num = 2, .list = {{first + 36, n, m->lkey}, {first, 3, m->lkey}}};
		struct request want = r;
		want.list[0] = (struct ibv_sge){(uintptr_t)buf + 100, n, on_demand->lkey};
		want.list[1] = (struct ibv_sge){(uintptr_t)buf + 64, 3, on_demand->lkey};
		alike(p, r, want, true);
	}
}

/* A QP that has used a region, and no other, notices what becomes of it. */
static void changes(void)
{
	struct pair p = make_pair(pd, IBV_QPT_RC);
	struct ibv_mr *m = ibv_reg_mr_iova(pd, buf, 1000, FAR, ALL);
	struct request r = {.opcode = IBV_WR_SEND, .num = 1};
	static struct outcome o;

	MUST(m);
	r.list[0] = (struct ibv_sge){FAR + 100, 8, m->lkey};
	o = carry_out(&p, r);
	MUST(o.in_slot && !memcmp(o.bytes, buf + 100, 8));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 5000, 1000, 0));
	r.list[0].addr = (uintptr_t)buf + 5100;
	o = carry_out(&p, r);
	MUST(o.in_slot && !memcmp(o.bytes, buf + 5100, 8));
	IS(0, ibv_dereg_mr(m));
	o = carry_out(&p, r);
	IS(IBV_WC_LOC_PROT_ERR, (int)o.send.status);
	MUST(!o.in_slot);
	end_pair(&p);
	while (ibv_poll_cq(cq, 1, &o.recv) > 0) /* receives that were flushed */
		;
}

/* Regions that have addresses of their own, are registered anew, or are used by way of a parent domain. */
static void regions(void)
{
	struct ibv_parent_domain_init_attr attr = {0};
	struct ibv_pd *parent;
	struct ibv_mr *m, *many[50];
	struct pair p;

	start();
	changes();
	p = make_pair(pd, IBV_QPT_RC);
	MUST(m = ibv_reg_mr_iova(pd, buf + 64, SIZE - 64, FAR, ALL));
	named(&p, m, FAR);
	MUST(m = ibv_reg_mr(pd, buf + 64, SIZE - 64, ALL | IBV_ACCESS_ZERO_BASED));
	named(&p, m, 0);
	MUST(m = ibv_reg_mr(pd, buf + 20000, 300, ALL));
	named(&p, mr, (uintptr_t)buf + 64);
	refused(pd, (struct ibv_sge){(uintptr_t)buf + 64, 3, m->lkey});
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 64, SIZE - 64, 0));
	named(&p, m, (uintptr_t)buf + 64);
	for (int i = 0; i < 50; i++)
		MUST(many[i] = ibv_reg_mr_iova(pd, buf + 64, SIZE - 64, FAR * (uint64_t)(i + 1), ALL));
	for (int i = 0; i < 100; i++)
		named(&p, many[i * 7 % 50], FAR * (uint64_t)(i * 7 % 50 + 1));
	end_pair(&p);

	attr.pd = pd;
	MUST(parent = ibv_alloc_parent_domain(ctx, &attr));
	p = make_pair(parent, IBV_QPT_RC);
	named(&p, mr, (uintptr_t)buf + 64);
	end_pair(&p);
	p = make_pair(pd, IBV_QPT_RC);
	MUST(m = ibv_reg_mr(parent, buf + 64, SIZE - 64, ALL));
	named(&p, m, (uintptr_t)buf + 64);
	end_pair(&p);
}

/* mapped has memory that the daemon maps itself. */
static void mapped(struct pair *p)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct request r = {.opcode = IBV_WR_SEND, .num = 1};
	static struct outcome o;
	struct ibv_mr *m;
	char *at;

	MUST(fd >= 0 && !ftruncate(fd, SIZE) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(at != MAP_FAILED);
	MUST(m = ibv_reg_mr(pd, at, SIZE, ALL));
	strcpy(at, "mapped");
	r.list[0] = (struct ibv_sge){(uintptr_t)at, 7, m->lkey};
	o = carry_out(p, r);
	MUST(!o.in_slot && !strcmp(o.bytes, "mapped"));
}

/* The payload is what memory has when the daemon may read it first. */
static void moments(void)
{
	struct ibv_sge from, to;
	struct ibv_send_wr send = {.wr_id = 7, .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE}, *bad;
	struct ibv_send_wr read = {.wr_id = 6, .opcode = IBV_WR_RDMA_READ, .num_sge = 1, .next = &send};
	struct ibv_qp_ex *q;
	struct pair p;

	start();
	p = make_pair(pd, IBV_QPT_RC);
	from = piece(100, 50); /* READ into 100, then WRITE from there */
	to = from;
	read.sg_list = &to;
	send.sg_list = &from;
	read.wr.rdma.remote_addr = (uintptr_t)buf + 3000;
	send.wr.rdma.remote_addr = (uintptr_t)buf + 5000;
	read.wr.rdma.rkey = send.wr.rdma.rkey = mr->rkey;
	memset(buf + 3000, 'r', 50);
	IS(0, ibv_post_send(p.a, &read, &bad));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(!in_slot(7) && !memcmp(buf + 3000, buf + 5000, 50));

	q = ibv_qp_to_qp_ex(p.a); /* what is stored before ibv_wr_complete is sent */
	ibv_wr_start(q);
	q->wr_id = 8;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(q, mr->rkey, (uintptr_t)buf + 6000);
	ibv_wr_set_sge(q, mr->lkey, (uintptr_t)buf + 100, 5);
	memcpy(buf + 100, "later", 5);
	IS(0, ibv_wr_complete(q));
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(in_slot(8) && !memcmp(buf + 6000, "later", 5));
	mapped(&p);
	end_pair(&p);
}

/* What a QP says of its inline room is true, and large queues have less of it. */
static void room(void)
{
	const uint32_t depths[] = {1, 16, 128, 256, 512, 1024, 4096};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t most;

	start();
	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
		struct ibv_qp *qp = sender(pd, IBV_QPT_RC, depths[i], &most);
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
		struct ibv_sge e = {(uintptr_t)buf + 100, most, 0};

		IS(depths[i] <= 256 ? 256 : depths[i] == 512 ? 128 : 64, (int)most);
		IS(0, ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
		IS((int)most, (int)init.cap.max_inline_data);
		connect_qp(qp, qp->qp_num);
		wr.sg_list = &e;
		wr.wr.rdma.remote_addr = (uintptr_t)buf + TO;
		wr.wr.rdma.rkey = mr->rkey;
		IS(0, ibv_post_send(qp, &wr, &bad));
		wait_wc(cq, IBV_WC_SUCCESS);
		MUST(!memcmp(buf + TO, buf + 100, most));
		e.length++;
		IS(EINVAL, ibv_post_send(qp, &wr, &bad));
		IS(0, ibv_destroy_qp(qp));
	}
}

static atomic_bool stop;

static void *churn(void *arg)
{
	while (!atomic_load(&stop)) {
		struct ibv_mr *m = ibv_reg_mr(pd, buf + 8192, 4096, ALL);
		MUST(m);
		IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 12288, 4096, 0));
		IS(0, ibv_dereg_mr(m));
	}
	return arg;
}

/* Other threads register memory, and end regions of their own, while one posts. */
static void threads(void)
{
	pthread_t others[2];
	struct pair p;

	start();
	p = make_pair(pd, IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&others[i], NULL, churn, NULL));
	for (int i = 0; i < 300; i++) {
		struct request r = {.opcode = IBV_WR_RDMA_WRITE, .num = 1, .list = {piece(100, 20)}};
		static struct outcome o;

		p.built = i & 1;
		memset(buf + 100, i, 20);
		o = carry_out(&p, r);
		MUST(o.in_slot && o.send.status == IBV_WC_SUCCESS && !memcmp(o.bytes, buf + 100, 20));
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(others[i], NULL));
	end_pair(&p);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"opcodes", opcodes}, {"keys", keys}, {"regions", regions}, {"moments", moments}, {"room", room},
	{"threads", threads},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	return 1;
}
