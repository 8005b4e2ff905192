/*
 * The daemon's local protocol, version 4: what docs/abi.md declares. That page says what each message does. The
 * declarations stand here as they stand there, block by block and with their comments, and TestVerbsProtocol
 * (tests/dropin) compares both: change them together. Package roce/daemon/abi has the same in Go.
 *
 * A message on the control socket is a goroce_header and a body, in one packet. The structs go over the socket, and
 * lie in shared memory, as the compiler lays them out: in the byte order of the machine, fields on their natural
 * boundaries, and with fields named reserved where there would be padding. A handle is a number of one connection; 0
 * is none. Texts are padded with zero bytes, and one that fills its array may have none at its end.
 */
#ifndef GOROCE_H
#define GOROCE_H

#include <stdint.h>

#define GOROCE_VERSION 4
#define GOROCE_MAX_MESSAGE 16384 /* bytes of a packet, with the header */
#define GOROCE_MAX_FDS 16        /* descriptors that come with a packet */

/*
 * Requests. Numbers that are missing are of requests that neither library makes: a program in C reads the device's
 * clock by CLOCK_MONOTONIC, address handles are not modified, librdmacm asks for no delay, and a membership is left
 * by closing it.
 */
enum goroce_op {
	/* The connection, and the device that is open on it. */
	GOROCE_HELLO = 1,
	GOROCE_OPEN = 2,
	GOROCE_QUERY_PORT = 3,
	GOROCE_QUERY_GIDS = 4,
	GOROCE_QUERY_PKEY = 5,
	/* Objects of verbs. Those with rings bring the memory for them along. */
	GOROCE_ALLOC_PD = 7,
	GOROCE_ALLOC_XRCD = 8,
	GOROCE_CREATE_CHANNEL = 9,
	GOROCE_CREATE_CQ = 10,
	GOROCE_RESIZE_CQ = 11,
	GOROCE_REG_MR = 12,
	GOROCE_REREG_MR = 13,
	GOROCE_ALLOC_MW = 14,
	GOROCE_CREATE_AH = 15,
	GOROCE_CREATE_SRQ = 17,
	GOROCE_MODIFY_SRQ = 18,
	GOROCE_QUERY_SRQ = 19,
	GOROCE_CREATE_QP = 20,
	GOROCE_MODIFY_QP = 21,
	GOROCE_QUERY_QP = 22,
	GOROCE_ATTACH = 23,
	GOROCE_DETACH = 24,
	GOROCE_CLOSE = 25,
	/* The connection manager. Behind the body of a request about an ID a goroce_cm_scope names its channel. */
	GOROCE_OPEN_CM = 26,
	GOROCE_CREATE_CM_ID = 27,
	GOROCE_TAKE_EVENT = 28,
	GOROCE_BIND = 29,
	GOROCE_LISTEN = 30,
	GOROCE_RESOLVE_ADDRESS = 31,
	GOROCE_RESOLVE_ROUTE = 32,
	GOROCE_CONNECT = 33,
	GOROCE_ACCEPT = 34,
	GOROCE_ESTABLISH = 35,
	GOROCE_REJECT = 36,
	GOROCE_DISCONNECT = 38,
	GOROCE_NOTIFY = 39,
	GOROCE_JOIN = 40,
	GOROCE_INIT_QP_ATTR = 42,
	GOROCE_SET_OPTION = 43,
	GOROCE_QUERY_CM_ID = 44,
	GOROCE_MIGRATE = 45,
	/* Of all kinds: a new request gets the next number. */
	GOROCE_QUERY_DEVICE = 46,
	GOROCE_READ_COUNTERS = 47,
	GOROCE_OPEN_QP = 48,
	GOROCE_SHARE_DOORBELLS = 50,
	GOROCE_SHARE_MEMORY = 51,
	GOROCE_QUERY_QP_FAILURE = 52,
};

struct goroce_header {
	uint16_t op;
	uint16_t status; /* of a reply: 0, or why it was refused */
	uint32_t seq;    /* of a request; the reply has the same */
};

/*
 * Beginning: hello, then open device, then share doorbells, each once. A client that has no QPs, such as
 * libgoroce-sys.so, leaves out the doorbells. The reply to open brings the socket of asynchronous events, that to
 * share doorbells an eventfd for each shard, by which a sleeping shard is woken.
 */
#define GOROCE_MAGIC 0x6F726F67

struct goroce_hello {
	uint32_t magic;
	uint16_t min_version, max_version; /* that the client speaks */
};

struct goroce_hello_reply {
	uint16_t version; /* that both speak from now on */
	uint16_t reserved;
	uint32_t devices;
	char     names[64][64]; /* of the devices */
};

struct goroce_open {
	char device[64]; /* all zero: the first */
};

struct goroce_device_reply {
	char     name[64], firmware[64];
	uint64_t node_guid, sys_image_guid, caps, max_mr_size;
	int64_t  clock_offset; /* CLOCK_MONOTONIC minus the device's clock, in ns */
	uint32_t vendor_id, vendor_part, hw_version, ports, atomic;
	uint32_t max_qp, max_qp_wr, max_sge, max_inline, max_cq, max_cqe;
	uint32_t max_mr, max_mw, max_pd, max_ah, max_srq, max_srq_wr, max_srq_sge, max_xrcd;
	uint32_t max_mcast_group, max_mcast_qp, max_qp_rd_atomic, max_qp_init_rd_atom;
	uint32_t local_ca_ack_delay;
	uint32_t index;            /* of the device in the daemon */
	uint32_t num_comp_vectors;
};

struct goroce_open_reply {
	struct goroce_device_reply device;
	uint32_t shards;    /* loops of the device, each with doorbells of its own */
	uint32_t doorbells; /* for each shard */
};

/* Events come as packets on sockets of their own, so that a program can poll them. What the socket has no room for
 * waits in the daemon, which never blocks for a client. */
struct goroce_event {      /* a packet on the socket of events */
	uint32_t type;     /* ibv_event_type */
	uint32_t object;   /* handle; 0 for the device */
};

struct goroce_completion { /* a packet on a channel's socket */
	uint32_t cq;       /* which was armed, and has a completion */
};

/* Asking. Lists, of GIDs and of counters, have as many entries as fit into the length of the reply. */
struct goroce_port {
	uint32_t port;  /* 1 */
	uint32_t index; /* of the partition table */
};

struct goroce_port_reply {
	uint32_t state, max_mtu, active_mtu; /* ibv_port_state; bytes */
	uint32_t max_msg_size, gids; /* rows of the GID table, the empty ones too */
	uint32_t speed;              /* of the network interface, Mb/s; 0 if it is not known */
	uint32_t phys_state;         /* 5 LinkUp, 3 Disabled, 2 Polling */
	uint32_t port_cap_flags;     /* ibv_port_cap_flags */
	char     netif[64];
};

struct goroce_gid_entry {
	uint8_t  gid[16];
	uint32_t index, reserved;
	char     netif[64];
};

struct goroce_pkey_reply {
	uint16_t pkey, reserved;
};

struct goroce_clock_reply {
	int64_t now; /* nanoseconds */
};

struct goroce_counter {
	char     name[64];
	uint64_t value;
	uint32_t hw; /* 0: a file of counters/ in sysfs, 1: of hw_counters/ */
	uint32_t reserved;
};

/*
 * Objects of verbs. Rights, masks, states, types and opcodes have the numbers of verbs (infiniband/verbs.h), path
 * MTUs are in bytes, P_Keys, keys and QPNs are plain numbers. A reply of goroce_ring names what was made, and where
 * in the memfd of the request its rings are. What is closed is gone when the reply is there: the daemon reads and
 * writes its memory no more.
 */
struct goroce_object {
	uint32_t handle;
};

/* Kinds of objects. */
#define GOROCE_KIND_MEMBERSHIP    1 /* in a multicast group, of a CM ID */
#define GOROCE_KIND_CM_ID         2
#define GOROCE_KIND_CM_CHANNEL    3 /* an event channel of the connection manager */
#define GOROCE_KIND_QP            4
#define GOROCE_KIND_SRQ           5
#define GOROCE_KIND_MW            6
#define GOROCE_KIND_MR            7
#define GOROCE_KIND_SHARED_MEMORY 8
#define GOROCE_KIND_AH            9
#define GOROCE_KIND_CQ            10
#define GOROCE_KIND_CHANNEL       11 /* a completion channel */
#define GOROCE_KIND_XRCD          12
#define GOROCE_KIND_PD            13

struct goroce_close {
	uint32_t handle, kind;
};

struct goroce_close_reply {
	uint32_t completions; /* events of a CQ, sent on its channel's socket */
	uint32_t events;      /* asynchronous events of a CQ, QP or SRQ; of a CM ID or membership: those taken */
	uint32_t signals;     /* of a CM ID: messages to take off the socket of its channel */
};

#define GOROCE_XRCD_CREATE    1 /* O_CREAT of ibv_open_xrcd */
#define GOROCE_XRCD_EXCLUSIVE 2 /* O_EXCL */

struct goroce_alloc_xrcd {
	uint32_t flags;
};

struct goroce_create_cq {
	uint32_t entries, channel, comp_vector;
};

struct goroce_resize_cq {
	uint32_t cq, entries;
};

struct goroce_ring {
	uint32_t handle;
	uint32_t num;        /* QPN; number of an XRC SRQ */
	uint64_t size;       /* bytes of the memfd that the rings take */
	uint64_t send, recv; /* QP: bytes of the send ring, at 0, and of the receive ring behind it */
	uint32_t shard, doorbell; /* QP: whose doorbells to ring, and which */
};

#define GOROCE_REMOTE_INVALIDATE 0x80000000u /* a right of reg_mr: SEND with invalidate may revoke the key */

#define GOROCE_MEMFD   1 /* a piece of a memfd that was shared */
#define GOROCE_PROCESS 2 /* memory of the client's process */

/* Why memory of the process is not in a file: goroce_reg_mr.file of GOROCE_PROCESS. 0 does not say. */
enum goroce_stays {
	GOROCE_STAYS_ASKED = 1,     /* GOROCE_MR=process */
	GOROCE_STAYS_ON_DEMAND,     /* IBV_ACCESS_ON_DEMAND */
	GOROCE_STAYS_SHORT,
	GOROCE_STAYS_MUCH,          /* 64 MiB are moved already */
	GOROCE_STAYS_OFTEN,         /* the program ends regions often */
	GOROCE_STAYS_BESIDE,        /* something else is in its pages */
	GOROCE_STAYS_OF_THREAD,     /* the thread's stack or variables */
	GOROCE_STAYS_BY_REGION,     /* the daemon may write to its pages for another region */
	GOROCE_STAYS_MARKED,        /* madvise has marked pages, or libgoroce-sys.so is not loaded */
	GOROCE_STAYS_THREADS,       /* other threads run, and cannot be made to wait */
	GOROCE_STAYS_KERNEL,        /* the kernel may store into it by itself: io_uring, devices */
	GOROCE_STAYS_LOCKED,        /* mlock */
	GOROCE_STAYS_UNMOVABLE,     /* not plain private memory, or no memory for a copy */
	GOROCE_STAYS_REFUSED,       /* the daemon did not take the file */
};

struct goroce_reg_mr {
	uint32_t pd, access, kind; /* ibv_access_flags */
	uint32_t file;             /* GOROCE_MEMFD: handle of shared memory; else enum goroce_stays */
	uint64_t addr, length;     /* in the memfd, or the process */
	uint64_t iova;             /* what SGEs and peers call it */
};

struct goroce_reg_reply {
	uint32_t handle, key;
};

#define GOROCE_KEEP_KEYS 0x80000000u

struct goroce_rereg_mr {
	uint32_t             mr, mask; /* ibv_rereg_mr_flags, GOROCE_KEEP_KEYS */
	struct goroce_reg_mr to;
};

struct goroce_alloc_mw {
	uint32_t pd, type; /* 1, 2 */
};

struct goroce_ah {
	uint8_t  dgid[16];
	uint32_t sgid_index, port, flow_label;
	uint8_t  traffic_class, hop_limit;
	uint16_t reserved;
};

struct goroce_create_ah {
	uint32_t         pd;
	struct goroce_ah ah;
};

struct goroce_modify_ah {
	uint32_t         handle;
	struct goroce_ah ah;
};

struct goroce_create_srq {
	uint32_t pd, xrcd, cq, type; /* ibv_srq_type */
	uint32_t max_wr, max_sge, limit;
};

struct goroce_srq_attr {
	uint32_t srq, mask; /* ibv_srq_attr_mask */
	uint32_t max_wr, max_sge, limit;
};

struct goroce_create_qp {
	uint32_t pd, send_cq, recv_cq, srq, xrcd, type; /* ibv_qp_type */
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint32_t sig_all;
};

struct goroce_open_qp {
	uint32_t xrcd, qpn, type; /* ibv_qp_type: XRC_RECV */
};

struct goroce_qp_attr {
	uint32_t         qp, mask; /* ibv_qp_attr_mask */
	uint32_t         state, cur_state, port, pkey_index, access, qkey;
	struct goroce_ah ah;
	uint32_t         path_mtu; /* bytes */
	uint32_t         dest_qpn, rq_psn, sq_psn, max_rd_atomic, max_dest_rd_atomic;
	uint32_t         min_rnr_timer, timeout, retry_cnt, rnr_retry;
	uint32_t         rate_limit, sqd_notify, draining;
	uint32_t         max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
};

struct goroce_failure {
	int64_t  at;    /* on the device's clock, in nanoseconds */
	int64_t  since; /* ended key, missing receive: for how long */
	uint64_t addr, length;
	uint64_t start, size; /* of the region */
	uint32_t reason;      /* 0: none */
	uint32_t op;          /* ibv_wr_opcode */
	uint32_t peer;        /* 1: the peer's request */
	uint32_t psn, key;
	uint32_t need, have; /* ibv_access_flags */
	uint32_t ended, by;
	uint32_t tries, answers, error;
	char     text[256]; /* a sentence, which ends with a zero byte */
};

struct goroce_qp_failure {
	struct goroce_failure failed;  /* why the QP went to ERR or SQE last */
	struct goroce_failure refused; /* the peer's request that it refused last */
};

struct goroce_group {
	uint32_t qp;
	uint8_t  gid[16];
};

/*
 * The connection manager (libgoroce-sys.so). An event channel has a socket that is readable while events wait; the
 * events themselves are taken by requests. A request of a peer brings a new ID, whose handle comes with the event.
 * Times are in nanoseconds, ports and IPv6 scopes plain numbers, addresses in network byte order.
 */
#define GOROCE_CM_ALL_DEVICES 1

struct goroce_open_cm {
	uint32_t flags;
};

struct goroce_cm_signal { /* on the socket of a channel */
	uint32_t reserved;
};

struct goroce_cm_scope {
	uint32_t channel;
	uint32_t membership; /* 1: the handle is that of a membership */
};

struct goroce_cm_addr {
	uint8_t  ip[16]; /* IPv4 in the last 4 */
	uint16_t port;
	uint16_t family; /* 4, 6, or 0 for none */
	uint32_t scope;  /* of a link-local address of IPv6: the network interface's index; 0 for none */
};

struct goroce_create_cm_id {
	uint32_t channel;
	uint32_t space;      /* rdma_port_space */
	uint32_t type;       /* ibv_qp_type; 0 as the space has it */
	uint32_t reserved;
	uint64_t service_id; /* in place of a port; 0 for none */
	uint64_t cookie;
};

struct goroce_cm_bind {
	uint32_t              id, reserved;
	struct goroce_cm_addr addr;
	uint64_t              cookie; /* join: of the membership */
};

struct goroce_cm_listen {
	uint32_t id, backlog;
};

struct goroce_cm_resolve {
	uint32_t              id, reserved;
	int64_t               timeout_ns;
	struct goroce_cm_addr local, remote;
};

struct goroce_cm_param { /* rdma_conn_param */
	uint32_t qpn, qkey;
	uint8_t  srq, responder_resources, initiator_depth, retry_count, rnr_retry;
	uint8_t  private_len; /* bytes of private data */
	uint8_t  info_len;    /* in a rejected event: bytes of info */
	uint8_t  reserved;
};

struct goroce_cm_connect {
	uint32_t               id, reserved;
	int64_t                timeout_ns; /* connect: how long it goes on asking; 0 for 15 tries */
	uint64_t               cookie;     /* accept: of the ID from now on; 0 leaves it */
	struct goroce_cm_param param;
	uint8_t                private_data[200];
};

struct goroce_cm_reject {
	uint32_t id;
	uint16_t reason; /* of the REJ; 0 for 28, the consumer's */
	uint8_t  info_len, private_len;
	uint8_t  info[72], private_data[200];
};

struct goroce_cm_value {
	uint32_t id, which;
	int64_t  value;
};

struct goroce_cm_delay {
	uint32_t id, reserved;
	int64_t  ns;
};

struct goroce_cm_id_attr {
	uint32_t              space, type;
	uint64_t              service_id;
	struct goroce_cm_addr local, remote;
	uint32_t              path_mtu; /* bytes */
	struct goroce_ah      ah;
	uint32_t              device; /* 1 more than the index of its device; 0 for that of the connection */
};

#define GOROCE_CM_NO_EVENT 0xFFFFFFFFu

struct goroce_cm_event {
	uint32_t               type; /* rdma_cm_event_type */
	uint32_t               id, listener; /* multicast: the membership in place of a listener */
	int32_t                status;
	uint32_t               tries;   /* unreachable: how often was asked */
	uint32_t               service; /* ibv_qp_type of the ID */
	uint32_t               left;    /* events that still wait */
	uint32_t               signals; /* messages to take off the channel's socket */
	uint64_t               cookie;
	struct goroce_cm_param param;
	struct goroce_cm_addr  group; /* multicast */
	struct goroce_ah       ah;    /* UD: where to send */
	uint8_t                info[72], private_data[200];
};

/*
 * Rings, in memory that both sides write (go doc ./qp/ring). A ring begins with the header, which the daemon has
 * written before it replies; then come the lines of the producer's index, the consumer's index and the wake word,
 * each of 64 bytes, and from byte 256 on the slots. A slot has slot_size bytes, a multiple of 64. Offsets are those
 * of lib.h (RING_PRODUCER and its like).
 */
struct goroce_ring_header {
	uint32_t magic; /* 0x474E4952 */
	uint16_t version, kind;
	uint32_t entries, slot_size, max_sge, max_inline, generation, reserved[9];
};

struct goroce_send_slot { /* SGEs, or inline bytes, follow */
	uint64_t id;
	uint8_t  opcode, flags; /* ibv_wr_opcode, ibv_send_flags */
	uint16_t num_sge;
	uint32_t inline_len, imm, remote_srq;
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn;
	uint64_t compare, swap;
	uint32_t ah, remote_qkey;
};

struct goroce_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct goroce_recv_slot { /* SGEs follow */
	uint64_t id;
	uint16_t num_sge, reserved[3];
};

struct goroce_cq_slot {
	uint64_t id;
	uint8_t  status, opcode, flags; /* ibv_wc_status, ibv_wc_opcode, ibv_wc_flags */
	uint8_t  sl; /* ibv_wc.sl of a UD receive: 9 for a packet of IPv6, 10 for one of IPv4 */
	uint32_t vendor_err, byte_len, imm, invalidated_key, qpn, src_qp, reserved2;
	int64_t  timestamp;
	uint64_t reserved3[2];
};

/* Doorbells, in memory that both sides write: a buffer for each shard, which begins with this header. Behind it are
 * the wake word, the summary and the bits of QPs (verbs/doorbell.c). */
struct goroce_doorbells_header {
	uint32_t magic; /* 0x4C4C4542 */
	uint16_t version, reserved;
	uint32_t doorbells, reserved2[13];
};

#endif
