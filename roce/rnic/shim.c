//go:build rnic && cgo

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// ---- Posting

struct rnic_send *rnic_new_send(struct ibv_qp *qp, struct ibv_qp_ex *ex, uint32_t max_sge, uint32_t max_inline)
{
	size_t sges = max_sge ? max_sge : 1; // inline payload uses one
	size_t payload = max_inline > 8 ? max_inline : 8;
	struct rnic_send *s = calloc(1, sizeof *s + RNIC_BATCH * (sges * sizeof(struct ibv_sge) + payload));

	if (!s)
		return NULL;
	s->qp = qp;
	s->ex = ex;
	struct ibv_sge *sge = (struct ibv_sge *)(s + 1);
	unsigned char *bytes = (unsigned char *)(sge + RNIC_BATCH * sges);
	for (int i = 0; i < RNIC_BATCH; i++) {
		s->wr[i].sge = sge + i * sges;
		s->wr[i].payload = bytes + i * payload;
	}
	return s;
}

void rnic_free_send(struct rnic_send *s) { free(s); }

struct rnic_recv *rnic_new_recv(struct ibv_qp *qp, struct ibv_srq *srq, uint32_t max_sge)
{
	struct rnic_recv *r = calloc(1, sizeof *r + RNIC_BATCH * max_sge * sizeof(struct ibv_sge));

	if (!r)
		return NULL;
	r->qp = qp;
	r->srq = srq;
	for (int i = 0; i < RNIC_BATCH; i++)
		r->wr[i].sg_list = (struct ibv_sge *)(r + 1) + i * max_sge;
	return r;
}

void rnic_free_recv(struct rnic_recv *r) { free(r); }

// Some providers return errno values as negative numbers.
static int positive(int err) { return err < 0 ? -err : err; }

static int is_extended(const struct rnic_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_WRITE || wr->opcode == RNIC_WR_FLUSH;
}

static void build(struct ibv_send_wr *to, const struct rnic_wr *wr, enum ibv_qp_type type)
{
	memset(to, 0, sizeof *to);
	to->wr_id = wr->id;
	to->sg_list = wr->sge;
	to->num_sge = wr->num_sge;
	to->opcode = wr->opcode;
	to->send_flags = wr->flags;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		to->imm_data = htonl(wr->imm);
	else
		to->invalidate_rkey = wr->imm;

	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->wr.atomic.remote_addr = wr->remote_addr;
		to->wr.atomic.rkey = wr->rkey;
		to->wr.atomic.compare_add = wr->compare_add;
		to->wr.atomic.swap = wr->swap;
		break;
	case IBV_WR_BIND_MW:
		to->bind_mw.mw = wr->mw;
		to->bind_mw.rkey = wr->rkey;
		to->bind_mw.bind_info.mr = wr->mr;
		to->bind_mw.bind_info.addr = wr->bind_addr;
		to->bind_mw.bind_info.length = wr->bind_length;
		to->bind_mw.bind_info.mw_access_flags = wr->bind_access;
		break;
	default:
		if (type == IBV_QPT_UD) {
			to->wr.ud.ah = wr->ah;
			to->wr.ud.remote_qpn = wr->remote_qpn;
			to->wr.ud.remote_qkey = wr->remote_qkey;
		} else {
			to->wr.rdma.remote_addr = wr->remote_addr;
			to->wr.rdma.rkey = wr->rkey;
		}
	}
	if (type == IBV_QPT_XRC_SEND)
		to->qp_type.xrc.remote_srqn = wr->remote_srqn;
}

// post_chain posts as many requests from wr[posted] on as one ibv_post_send can take. A
// bind ends a chain: for the next bind the provider reads the window's key from the
// ibv_mw, which the caller has to update in between.
static int post_chain(struct rnic_send *s, int n)
{
	int first = s->posted, end = first;
	struct ibv_send_wr *bad = NULL;

	while (end < n && !is_extended(&s->wr[end])) {
		build(&s->ibv[end], &s->wr[end], s->qp->qp_type);
		if (end > first)
			s->ibv[end - 1].next = &s->ibv[end];
		if (s->wr[end++].opcode == IBV_WR_BIND_MW)
			break;
	}
	int err = ibv_post_send(s->qp, &s->ibv[first], &bad);
	// librxe fails this way if the doorbell was refused: all requests are in the queue.
	s->posted = err && bad ? bad - s->ibv : end;
	if (s->posted == end && s->wr[end - 1].opcode == IBV_WR_BIND_MW)
		s->wr[end - 1].mw->rkey = s->wr[end - 1].rkey;
	return positive(err);
}

typedef void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type, uint8_t level);

// flush_of returns the member of ibv_qp_ex that follows wr_atomic_write in
// libraries that know FLUSH.
static wr_flush *flush_of(struct ibv_qp_ex *ex)
{
	wr_flush *f;

	memcpy(&f, (char *)ex + offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof ex->wr_atomic_write, sizeof f);
	return f;
}

static int post_extended(struct ibv_qp_ex *ex, const struct rnic_wr *wr)
{
	ibv_wr_start(ex);
	ex->wr_id = wr->id;
	ex->wr_flags = wr->flags & ~(uint32_t)IBV_SEND_INLINE;
	if (wr->opcode == IBV_WR_ATOMIC_WRITE)
		ibv_wr_atomic_write(ex, wr->rkey, wr->remote_addr, wr->payload);
	else
		flush_of(ex)(ex, wr->rkey, wr->remote_addr, wr->flush_length, wr->flush_level, wr->flush_extent);
	return positive(ibv_wr_complete(ex));
}

int rnic_post_send(struct rnic_send *s, int n)
{
	int err = 0;

	for (s->posted = 0; s->posted < n && !err;) {
		if (!is_extended(&s->wr[s->posted]))
			err = post_chain(s, n);
		else if (!(err = post_extended(s->ex, &s->wr[s->posted])))
			s->posted++;
	}
	return err;
}

int rnic_post_recv(struct rnic_recv *r, int n)
{
	struct ibv_recv_wr *bad = NULL;

	for (int i = 0; i < n; i++)
		r->wr[i].next = i + 1 < n ? &r->wr[i + 1] : NULL;
	int err = r->srq ? ibv_post_srq_recv(r->srq, r->wr, &bad) : ibv_post_recv(r->qp, r->wr, &bad);
	r->posted = !err ? n : bad ? bad - r->wr : 0;
	return positive(err);
}

int rnic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr,
		 uint64_t addr, uint64_t length, uint32_t access)
{
	struct ibv_mw_bind bind = {
		.wr_id = id,
		.send_flags = flags,
		.bind_info = { .mr = mr, .addr = addr, .length = length, .mw_access_flags = access },
	};

	return positive(ibv_bind_mw(qp, mw, &bind));
}

// ---- Polling

static int poll_plain(struct rnic_cq *c, int n)
{
	struct ibv_wc from[RNIC_BATCH];
	int got = ibv_poll_cq(c->cq, n, from);

	for (int i = 0; i < got; i++) {
		struct rnic_wc *to = &c->wc[i];

		to->id = from[i].wr_id;
		to->status = from[i].status;
		to->opcode = from[i].opcode;
		to->vendor_err = from[i].vendor_err;
		to->byte_len = from[i].byte_len;
		to->imm = from[i].wc_flags & IBV_WC_WITH_IMM ? ntohl(from[i].imm_data) : from[i].invalidated_rkey;
		to->qp_num = from[i].qp_num;
		to->src_qp = from[i].src_qp;
		to->flags = from[i].wc_flags;
	}
	return got < 0 ? -EIO : got;
}

static int poll_extended(struct rnic_cq *c, int n)
{
	struct ibv_cq_ex *ex = c->ex;
	struct ibv_poll_cq_attr attr = {};
	int got = 0, err = ibv_start_poll(ex, &attr);

	if (err)
		return err == ENOENT ? 0 : -positive(err);
	do {
		struct rnic_wc *to = &c->wc[got++];

		to->id = ex->wr_id;
		to->status = ex->status;
		to->opcode = ibv_wc_read_opcode(ex);
		to->vendor_err = ibv_wc_read_vendor_err(ex);
		to->byte_len = ibv_wc_read_byte_len(ex);
		to->flags = ibv_wc_read_wc_flags(ex);
		to->imm = to->flags & IBV_WC_WITH_IMM ? ntohl(ibv_wc_read_imm_data(ex)) : ibv_wc_read_invalidated_rkey(ex);
		to->qp_num = ibv_wc_read_qp_num(ex);
		to->src_qp = ibv_wc_read_src_qp(ex);
		to->ticks = c->stamps ? ibv_wc_read_completion_ts(ex) : 0;
	} while (got < n && !(err = ibv_next_poll(ex)));
	ibv_end_poll(ex);
	return got; // after an error of ibv_next_poll, too: a device gives completions only once
}

int rnic_poll(struct rnic_cq *c, int n) { return c->ex ? poll_extended(c, n) : poll_plain(c, n); }

struct rnic_cq *rnic_create_cq(struct ibv_context *ctx, int entries, struct ibv_comp_channel *channel, int vector, int ex,
			       int stamps)
{
	struct rnic_cq *c = calloc(1, sizeof *c);

	if (!c) {
		errno = ENOMEM;
		return NULL;
	}
	if (ex) {
		struct ibv_cq_init_attr_ex attr = {
			.cqe = entries,
			.channel = channel,
			.comp_vector = vector,
			.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
				    (stamps ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0),
		};
		c->ex = ibv_create_cq_ex(ctx, &attr);
		c->cq = c->ex ? ibv_cq_ex_to_cq(c->ex) : NULL;
		c->stamps = stamps;
	} else {
		c->cq = ibv_create_cq(ctx, entries, NULL, channel, vector);
	}
	if (!c->cq) {
		int err = errno;

		free(c);
		errno = err;
		return NULL;
	}
	return c;
}

int rnic_destroy_cq(struct rnic_cq *c)
{
	int err = ibv_destroy_cq(c->cq);

	if (!err)
		free(c);
	return positive(err);
}

// ---- Objects

struct ibv_qp *rnic_create_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			      struct ibv_qp_init_attr *init, uint64_t ops, struct ibv_qp_ex **ex)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
		.pd = xrcd ? NULL : pd,
		.xrcd = xrcd,
		.send_ops_flags = ops,
	};

	if (ops)
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &attr);
	if (qp) {
		init->cap = attr.cap;
		*ex = ops ? ibv_qp_to_qp_ex(qp) : NULL;
	}
	return qp;
}

struct ibv_xrcd *rnic_open_xrcd(struct ibv_context *ctx)
{
	// Without a file the domain is private to this process.
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(ctx, &attr);
}

struct ibv_srq *rnic_create_xrc_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq, struct ibv_srq_attr *attr)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = *attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &init);

	*attr = init.attr;
	return srq;
}

struct ibv_mr *rnic_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova(pd, (void *)addr, length, iova, access);
}

int rnic_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, size_t length, int access)
{
	int ret = ibv_rereg_mr(mr, flags, pd, (void *)addr, length, access);
	int err = errno ? errno : EINVAL;

	switch (ret) {
	case 0:
	case IBV_REREG_MR_ERR_DO_FORK_OLD: // the new region is valid: only the fork bookkeeping of the old memory failed
		return 0;
	case IBV_REREG_MR_ERR_INPUT:
	case IBV_REREG_MR_ERR_DONT_FORK_NEW:
		return err;
	case IBV_REREG_MR_ERR_CMD:
		// Without the verb in provider or driver there was no command. EBUSY is the refusal of a region that has
		// windows, which changes nothing.
		return err == EOPNOTSUPP || err == ENOSYS || err == EBUSY ? err : -err;
	default:
		return -err;
	}
}

// ---- Events, clock, queries

int rnic_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq)
{
	void *context;

	return ibv_get_cq_event(channel, cq, &context) ? errno : 0;
}

int rnic_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event, int *type, uintptr_t *element)
{
	if (ibv_get_async_event(ctx, event))
		return errno;
	*type = event->event_type;
	*element = (uintptr_t)event->element.qp;
	return 0;
}

int rnic_clock(struct ibv_context *ctx, uint64_t *ticks)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	int err = ibv_query_rt_values_ex(ctx, &values);

	*ticks = (uint64_t)values.raw_clock.tv_sec * 1000000000 + values.raw_clock.tv_nsec;
	return positive(err);
}

// ibv_query_port is a macro over an inline function.
int rnic_query_port(struct ibv_context *ctx, int port, struct ibv_port_attr *attr)
{
	return positive(ibv_query_port(ctx, port, attr));
}

ssize_t rnic_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *rows, size_t n)
{
	return ibv_query_gid_table(ctx, rows, n, 0);
}
