//go:build rnic && cgo

// The C side of package rnic. Structs of libibverbs that contain unions, whose members Go
// cannot access, have flat counterparts here. Go fills and reads these in C memory.

#ifndef GOROCE_RNIC_SHIM_H
#define GOROCE_RNIC_SHIM_H

#include <infiniband/verbs.h>

// RNIC_BATCH is how many requests or completions one call carries.
#define RNIC_BATCH 32

// Constants of Linux 6.2 that libibverbs has only after version 44.
enum {
	RNIC_WC_FLUSH = 8,
	RNIC_WR_FLUSH = 14,
	RNIC_ACCESS_FLUSH_GLOBAL = 1 << 8,
	RNIC_ACCESS_FLUSH_PERSISTENT = 1 << 9,
	RNIC_QP_EX_WITH_FLUSH = 1 << 11,
};

// rnic_wr is a send request.
struct rnic_wr {
	struct ibv_sge *sge;    // fixed: room for the queue's max_sge
	unsigned char *payload; // fixed: room for the queue's max_inline, at least 8 bytes
	uint64_t id;
	uint64_t remote_addr;
	uint64_t compare_add, swap;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	uint64_t bind_addr, bind_length;
	uint32_t opcode, flags, num_sge;
	uint32_t imm; // immediate as a number, or the key to invalidate
	uint32_t rkey;
	uint32_t remote_qpn, remote_qkey, remote_srqn;
	uint32_t bind_access;
	uint32_t flush_length;
	uint8_t flush_extent, flush_level;
};

// rnic_send is the send queue of a QP.
struct rnic_send {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; // for ATOMIC WRITE and FLUSH; NULL if the QP has neither
	int posted;           // how many requests the last rnic_post_send posted
	struct rnic_wr wr[RNIC_BATCH];
	struct ibv_send_wr ibv[RNIC_BATCH];
};

// rnic_recv is the receive queue of a QP, or an SRQ: one of qp and srq is set.
struct rnic_recv {
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	int posted;
	struct ibv_recv_wr wr[RNIC_BATCH]; // sg_list is fixed
};

// rnic_wc is a completion.
struct rnic_wc {
	uint64_t id;
	uint64_t ticks; // of the device's clock, if the CQ has timestamps
	uint32_t status, opcode, vendor_err, byte_len;
	uint32_t imm; // immediate as a number, or the invalidated key
	uint32_t qp_num, src_qp, flags;
};

// rnic_cq is a CQ with the buffer for its completions.
struct rnic_cq {
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex; // with timestamps; otherwise NULL
	int stamps;           // completions of ex have ticks
	struct rnic_wc wc[RNIC_BATCH];
};

// The rnic_new functions return NULL if there is no memory. The result is freed with the
// corresponding rnic_free function.
struct rnic_send *rnic_new_send(struct ibv_qp *qp, struct ibv_qp_ex *ex, uint32_t max_sge, uint32_t max_inline);
struct rnic_recv *rnic_new_recv(struct ibv_qp *qp, struct ibv_srq *srq, uint32_t max_sge);
void rnic_free_send(struct rnic_send *s);
void rnic_free_recv(struct rnic_recv *r);

// These post wr[0..n), in order, until one is refused. They return 0 or an errno
// and set posted.
int rnic_post_send(struct rnic_send *s, int n);
int rnic_post_recv(struct rnic_recv *r, int n);

// rnic_bind_mw binds a window of type 1.
int rnic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr,
		 uint64_t addr, uint64_t length, uint32_t access);

// rnic_poll moves up to n completions to wc and returns how many, or -errno.
int rnic_poll(struct rnic_cq *c, int n);

// rnic_create_qp creates a QP. ops are the IBV_QP_EX_WITH flags that it must support beyond
// ibv_post_send, and *ex is set if there are any. xrcd is for XRC target QPs.
struct ibv_qp *rnic_create_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			      struct ibv_qp_init_attr *init, uint64_t ops, struct ibv_qp_ex **ex);

struct ibv_xrcd *rnic_open_xrcd(struct ibv_context *ctx);
struct ibv_srq *rnic_create_xrc_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq, struct ibv_srq_attr *attr);

// rnic_create_cq creates a CQ for rnic_poll: an ibv_cq_ex if ex is set, with timestamps if
// stamps is set too. It returns NULL with errno set if it fails.
struct rnic_cq *rnic_create_cq(struct ibv_context *ctx, int entries, struct ibv_comp_channel *channel, int vector, int ex,
			       int stamps);
int rnic_destroy_cq(struct rnic_cq *c);

// Addresses of memory are passed as integers, so that cgo's pointer checks do not read it.
struct ibv_mr *rnic_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access);
// rnic_rereg_mr returns 0, an errno if the region is as before, or a negative errno if it must not be used any more.
int rnic_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, size_t length, int access);

// rnic_get_cq_event and rnic_get_async_event take an event without waiting. They
// return 0 or an errno: EAGAIN if there is none. element is the address of the
// object that an asynchronous event is about, or the number of a port.
int rnic_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq);
int rnic_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event, int *type, uintptr_t *element);

// rnic_clock reads the clock of completion timestamps. It returns 0 or an errno.
int rnic_clock(struct ibv_context *ctx, uint64_t *ticks);

// Wrappers of macros and inline functions of verbs.h.
int rnic_query_port(struct ibv_context *ctx, int port, struct ibv_port_attr *attr);
ssize_t rnic_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *rows, size_t n);

#endif
