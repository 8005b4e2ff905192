/*
 * What the files of this library share.
 *
 * An object that the program has (ibv.h) is the member v of a struct here, which has what the library needs beside
 * it: rings, counts of events, the process that has made it (born). The daemon knows the object by its handle.
 *
 * Locks. Those of rings come first, as the program may have them while it calls whatever it likes, from ibv_wr_start to
 * ibv_wr_complete and from ibv_start_poll to ibv_end_poll. The lock of a mailbox is taken before that of the table of
 * objects. The lock of the control socket and then that of fds.c come last.
 */
#ifndef LIB_H
#define LIB_H

#include "../client/client.h"
#include "ibv.h"

#define EXPORT __attribute__((visibility("default")))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/* The only port; bytes of a cache line, to which the parts of shared memory are aligned; the eventfds of a reply. */
enum { PORT = 1, LINE = 64, MAX_SHARDS = GOROCE_MAX_FDS };

/* shared.c: memory shared with the daemon, which can write to it at any time: what is read from it is checked. */
struct shared {
	char *at; /* NULL: none */
	uint64_t size;
	int fd;        /* until it is sent */
	uint32_t born; /* a child has nothing at this address */
};

int shared_call(struct control *control, struct call *call, uint64_t size, struct shared *s);
int shared_rings(struct ibv_context *v, uint16_t op, const void *body, size_t len, uint64_t size, struct goroce_ring *r,
		 struct shared *s);
void shared_free(struct shared *s);

/* table.c: objects by handle, for the events that name them. */
enum kind { KIND_CQ, KIND_QP, KIND_SRQ };

/* The table owns its entries, but not their objects. Each object is taken out before it is freed. */
struct entry {
	struct entry *next;
	uint32_t handle;
	enum kind kind;
	uint32_t *taken; /* asynchronous events of the object that the program has taken */
	void *object;
};

struct table {
	pthread_mutex_t lock;
	struct entry *slots[256];
};

int table_add(struct ibv_context *v, uint32_t handle, enum kind kind, void *object, uint32_t *taken);
void table_remove(struct table *t, uint32_t handle);
bool table_any(struct table *t, bool (*f)(void *arg, const struct entry *e), void *arg);
void table_clear(struct table *t);
struct entry *table_find(struct table *t, uint32_t handle); /* with the lock held */

/* mailbox.c: a socket with a packet for each event. */
struct mailbox {
	int fd;
	pthread_mutex_t lock;
	uint32_t stale;      /* events in the socket of objects that are closed */
	const int *at;       /* where the program has the descriptor; NULL as long as it has none */
	uint32_t users;      /* threads between mailbox_enter and mailbox_leave */
	bool ending;         /* mailbox_end was called */
	bool stays;          /* a user cannot leave: what the mailbox belongs to must not be freed */
	pthread_cond_t left; /* the last user has left */
};

/* mailbox_live looks at a message, with the lock of the mailbox held, and takes no other lock than the table's. It
 * reports whether the object of an event is open. If so, and with take, it hands the event to arg. */
typedef bool mailbox_live(void *arg, const uint32_t *message, bool take);
int mailbox_open(struct mailbox *m, int fd);
int mailbox_enter(struct mailbox *m);
void mailbox_leave(void *m);
void mailbox_end(struct mailbox *m);
int mailbox_take(struct mailbox *m, size_t words, mailbox_live *live, void *arg);
void mailbox_expect_stale(struct mailbox *m, uint32_t n, size_t words, mailbox_live *live, void *arg);
void mailbox_close(struct mailbox *m);

/* doorbell.c */
struct context;

/* Read by all threads that post, without a lock: it does not change between doorbells_open and doorbells_close. */
struct doorbells {
	struct shared pages;
	size_t size; /* of one shard's */
	uint32_t shards, count;
	int wakes[MAX_SHARDS];
};

int doorbells_open(struct context *c, const struct goroce_open_reply *r);
void doorbells_close(struct doorbells *d);
void doorbell_ring(struct doorbells *d, uint32_t shard, uint32_t doorbell);

/* device.c */
struct device {
	struct ibv_device v;
	struct goroce_device_reply attr; /* when it was listed first; a context has limits of its own */
	char socket[PATH_LEN];
	/* One for each list that has it, for each context, and for the list of known devices. */
	atomic_int refs;
	struct device *next; /* in the list known of device.c */
};

void device_release(struct device *d);
EXPORT void ibv_free_device_list(struct ibv_device **all);

/* region.c: memory regions by L_Key, for short payloads (short.c). */
struct mr {
	struct ibv_mr v;
	struct mr *next; /* in the table */
	uint32_t pd;     /* handle */
	uint64_t iova;   /* what SGEs call the first byte */
	bool own;        /* the daemon does not map it, and it was faulted in when registered: posts may copy it */
	uint32_t born;
	unsigned int access; /* as registered */
	struct share *share; /* the file that the daemon maps */
	struct moved *moved;
};

/* What an SGE with an L_Key is checked against. */
struct region {
	uint64_t generation; /* of the table when it was looked up */
	uint32_t lkey, pd;
	uint64_t iova, length; /* length 0: no payload may be copied from it */
	const char *addr;
};

/* The lock guards slots; a post that finds its copy's generation unchanged takes no lock. */
struct regions {
	pthread_mutex_t lock;
	_Atomic uint64_t generation; /* counts changes, from 1 on */
	struct mr *slots[1024];
};

static inline struct mr *mr_of(struct ibv_mr *v) { return container_of(v, struct mr, v); }

void regions_init(struct regions *t);
void regions_add(struct regions *t, struct mr *m);
void regions_remove(struct regions *t, struct mr *m);
void regions_change(struct regions *t, struct mr *m, const struct mr *to);
bool regions_copy(struct regions *t, uint32_t lkey, struct mr *to);
void regions_look_up(struct regions *t, uint32_t lkey, struct region *found);
void regions_clear(struct regions *t);
bool regions_overlap(uintptr_t from, uintptr_t to);

/* alone.c: whether anybody else can store into the memory of this process now. */
extern atomic_uint watchers; /* threads that run context.c, watch */

bool one_thread(void);
uint32_t others_than_threads(void);

/* freeze.c: pages for which others wait. */
struct frozen {
	int fd;
	void *from, *at;
	size_t len, moved;
};

bool can_freeze(void);
bool freeze(struct frozen *f, void *from, size_t len);
void thaw(struct frozen *f);
void freeze_end(struct frozen *f);

/* remap.c: memory of the process that is moved to a file. */
struct moved;

struct moved *remap_begin(struct ibv_context *v, void *addr, size_t length, uint32_t *stays);
void remap_shared(struct moved *m);
void remap_end(struct moved *m);

/* share.c: files that the daemon maps. */
struct share {
	struct share *next;
	dev_t dev;
	ino_t ino;
	uint32_t handle, regions;
	uintptr_t at; /* in the memory of the region that was registered last */
};

struct shares {
	pthread_mutex_t lock;
	struct share *first;
};

struct mapped_file;

void shares_init(struct shares *l);
int shares_take(struct ibv_context *v, struct mapped_file *f, uintptr_t at, struct share **taken);
void shares_give(struct ibv_context *v, uint32_t born, struct share *s);
void shares_clear(struct shares *l);

/*
 * context.c. The program has a pointer to v.context. What belongs to the connection, from control to shares, is made
 * anew in a forked child (fork.c); the rest is as it was in the parent.
 */
struct context {
	struct verbs_context v;
	struct device *device; /* with a reference */
	struct control control;
	struct goroce_device_reply attr; /* when it was opened */
	struct doorbells doorbells;
	struct mailbox events;
	struct table objects;
	struct regions regions;
	struct shares shares;
	pthread_t watcher; /* waits for the end of the connection; ibv_close_device joins it */
	bool fatal_told;   /* the program has IBV_EVENT_DEVICE_FATAL; under the lock of objects */
	int async_flags;        /* of the parent's async_fd, at the fork */
	bool holds;             /* in a child: a timer that is not set has the number async_fd */
	_Atomic uint32_t born;  /* the connection: forks of the process that made it */
	_Atomic uint32_t active_mtu; /* of the port, in bytes, when a path MTU was above it; 0 before */
	struct context *next, **link; /* of all contexts */
};

/* The lock of all contexts guards the lists of contexts and of known devices. A fork holds it (fork.c), and a child
 * that makes a context's connection. */
extern pthread_mutex_t contexts_lock;
extern struct context *contexts;

static inline struct context *context_of(struct ibv_context *v) { return container_of(v, struct context, v.context); }

/*
 * fork.c: whose an object is. An object notes in born what forks was when it was made. Only a child counts a fork, so
 * the objects of the parent go on there. Children of one parent have the same number, but no objects in common.
 */
extern uint32_t forks; /* from the first process to this one */

void fork_watch(void);
void context_inherit(struct context *c);

/* inherited reports whether an object is the parent's, of whose connection this process has no part. */
static inline bool inherited(uint32_t born) { return born != forks; }

/* gone returns 0, or why the connection does not work. Posts and polls ask it each time. Relaxed order is enough, as
 * nothing else is read because of it. */
static inline int gone(struct ibv_context *v)
{
	return atomic_load_explicit(&context_of(v)->control.gone, memory_order_relaxed);
}

/* dead returns 0, or why an object of the context does not work: ENODEV if it is the parent's. Unlike ready it never
 * makes a connection: an object of this process has one. */
static inline int dead(struct ibv_context *v, uint32_t born) { return inherited(born) ? ENODEV : gone(v); }

int ready(struct ibv_context *v);
int no_object(int err);
int context_call(struct ibv_context *v, struct call *call);
int ask(struct ibv_context *v, uint16_t op, const void *body, size_t len, void *reply, size_t size);
int ask_fds(struct ibv_context *v, uint16_t op, const void *body, size_t len, void *reply, size_t size, int want,
	    int *fds);
int close_handle(struct ibv_context *v, uint32_t kind, uint32_t handle, struct goroce_close_reply *r);
int close_object(struct ibv_context *v, uint32_t born, uint32_t kind, uint32_t handle);
void context_set_ops(struct verbs_context *v);

/* why.c: above reports whether a value is above a limit, and prints that with GOROCE_DEBUG=1: the daemon never sees
 * it. */
bool above(const char *call, const char *attr, uint64_t value, const char *limit, uint64_t most);

/* fail sets errno and returns NULL. */
static inline void *fail(int err)
{
	errno = err;
	return NULL;
}

/* events.c */
void async_closed(struct context *c, uint32_t sent, uint32_t taken);
void async_await(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked, uint32_t taken);

/* ring.c: this process's end of a ring. It is the producer of send and receive rings, and the consumer of a CQ's.
 * Indices count slots modulo 2^32, and do not wrap at the end of the ring. */
enum ring_kind { RING_SEND = 1, RING_RECV = 2, RING_CQ = 3 };
enum { MAX_SGE = 32 };
/* Offsets of the words in a ring, and of its first slot. */
enum { RING_PRODUCER = 64, RING_OVERRUN = 68, RING_CONSUMER = 128, RING_WAKE = 192, RING_SLOTS = 256 };

struct ring {
	/* Also held from wr_start to wr_complete, from start_poll to end_poll, and while the daemon resizes the ring. */
	pthread_mutex_t lock;
	char *base; /* NULL: a queue without entries */
	/* Copied from the header when the ring was attached to, and checked: the daemon cannot change them. */
	uint32_t entries, slot_size, max_sge, max_inline;
	uint32_t next;  /* index of the next slot to write, or to read */
	uint32_t seen;  /* the other side's index when it was read last */
};

void ring_init(struct ring *r);
void ring_destroy(struct ring *r);
uint64_t ring_size(enum ring_kind kind, uint32_t entries, uint32_t max_sge, uint32_t max_inline);
int ring_attach(struct ring *r, void *base, uint64_t size, enum ring_kind kind);
int ring_take(struct ring *r, struct shared *has, struct shared *made, uint64_t size, enum ring_kind kind);

static inline _Atomic uint32_t *ring_word(const struct ring *r, int offset) { return (void *)(r->base + offset); }

static inline void *ring_slot(const struct ring *r, uint32_t index)
{
	return r->base + RING_SLOTS + (size_t)(index & (r->entries - 1)) * r->slot_size;
}

bool ring_room(struct ring *r, uint32_t used);
bool ring_publish(struct ring *r, uint32_t next);
bool ring_refresh(struct ring *r);
int ring_ready(struct ring *r);

/* maps.c: the mappings of this process. */
struct mapping {
	uintptr_t start, end;
	bool readable, writable, executable, shared;
	uint64_t offset; /* of start, in the file */
	dev_t dev;       /* of the file; no file has inode 0 */
	ino_t ino;
};

/* The mappings are not those of one instant: other threads may change them between two look-ups. */
struct maps {
	int fd;
	bool text;       /* the lines of the file are read */
	size_t at, have; /* the next line, and the end of what was read */
	char lines[8192];
};

bool maps_open(struct maps *m);
bool maps_next(struct maps *m, uintptr_t addr, struct mapping *found);
bool maps_find(struct maps *m, uintptr_t addr, struct mapping *found);
void maps_close(struct maps *m);

/* file.c: the file that memory is shared from. */
struct mapped_file {
	struct mapping map; /* of the first byte */
	uint64_t offset;    /* of the memory in the file */
	int fd;
	bool opened; /* by us, and is ours to close */
};

bool file_find(struct mapped_file *f, const void *addr, size_t length);
bool file_open(struct mapped_file *f);
void file_close(struct mapped_file *f);
bool file_same(const struct mapped_file *f);

/* window.c: files that have a place for each page of a range of addresses. */
struct window {
	struct window *next;
	uintptr_t from;          /* the address whose place is at 0 */
	uint64_t size;           /* of the file */
	struct mapped_file file; /* fd, map.dev and map.ino */
	void *anchor;
	uint64_t moved; /* bytes of the records in it, one by one */
	const struct ibv_context *of; /* the only one whose connection has the file; NULL: any may */
};

struct window *window_make(uintptr_t from, uintptr_t to, const struct ibv_context *of);
void window_close(struct window *w);
void window_end(struct window *w);
bool window_has(const struct window *w, uintptr_t from, uintptr_t to);
bool window_worn(const struct window *w);
void *window_map(const struct window *w, uint64_t offset, size_t len, int prot);
bool window_place(const struct window *w, uint64_t offset, size_t len, int prot, void *at);

/* memory.c, mw.c */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

struct pd {
	struct ibv_pd v;
	struct pd *parent; /* of a parent domain: the protection domain */
	struct td *td;     /* of a parent domain; may be NULL */
	atomic_int uses;   /* parent domains of it; the daemon counts all other objects */
	uint32_t born;
};

/* A thread domain; the daemon knows none. */
struct td {
	struct ibv_td v;
	atomic_int uses; /* parent domains that have it */
};

static inline struct pd *pd_of(struct ibv_pd *v) { return container_of(v, struct pd, v); }

static inline int pd_dead(struct ibv_pd *v) { return dead(v->context, pd_of(v)->born); }

struct ibv_pd *parent_domain_alloc(struct ibv_context *v, struct ibv_parent_domain_init_attr *attr);
struct ibv_td *td_alloc(struct ibv_context *v, struct ibv_td_init_attr *attr);
int td_dealloc(struct ibv_td *v);
int mr_advise(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sg_list, uint32_t num_sge);
uint32_t mr_access(unsigned int access);

struct mw {
	struct ibv_mw v;
	uint32_t born;
};

static inline struct mw *mw_of(struct ibv_mw *v) { return container_of(v, struct mw, v); }

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
int mw_dealloc(struct ibv_mw *mw);
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* channel.c */
struct channel {
	struct ibv_comp_channel v; /* refcnt: its CQs, under the mutex of the context */
	struct mailbox box;
	uint32_t handle, born;
};

void channel_cq_closed(struct channel *h, uint32_t sent, uint32_t taken);

/* cq.c, cq_ex.c, poll.c. An extended CQ begins with the fields of the other, and programs convert the pointer by a cast
 * (ibv_cq_ex_to_cq), so all CQs are extended ones. */
struct cq {
	union {
		struct ibv_cq v;
		struct ibv_cq_ex ex;
	};
	struct ring ring;
	struct shared pages;
	uint32_t born;
	uint32_t comp_taken, async_taken; /* guarded by the context's table of objects */
	struct goroce_cq_slot current;    /* from start_poll to end_poll */
	atomic_bool told;                 /* cq_tell_overrun has spoken */
};

static inline struct cq *cq_of(struct ibv_cq *v) { return container_of(v, struct cq, v); }

struct ibv_cq_ex *cq_create_ex(struct ibv_context *v, struct ibv_cq_init_attr_ex *attr);
int cq_moderate(struct ibv_cq *v, struct ibv_modify_cq_attr *attr);
void cq_set_reads(struct ibv_cq_ex *q);
int cq_poll(struct ibv_cq *v, int n, struct ibv_wc *wc);
void cq_tell_overrun(struct cq *q);
int cq_notify(struct ibv_cq *v, int solicited_only);
void cq_forget(struct ibv_cq *v, uint32_t qpn);
void give_way(const void *cq, bool found);

/* srq.c, xrc.c */
struct srq {
	struct ibv_srq v;
	struct ring ring;
	struct shared pages;
	uint32_t num, async_taken, born;
	bool xrc;
};

struct xrcd {
	struct ibv_xrcd v;
	uint32_t handle, born;
};

static inline struct srq *srq_of(struct ibv_srq *v) { return container_of(v, struct srq, v); }
static inline struct xrcd *xrcd_of(struct ibv_xrcd *v) { return container_of(v, struct xrcd, v); }

struct ibv_srq *srq_create_ex(struct ibv_context *v, struct ibv_srq_init_attr_ex *attr);
int srq_num(struct ibv_srq *v, uint32_t *num);
int srq_post(struct ibv_srq *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int srq_post_ops(struct ibv_srq *v, void *op, void **bad_op);
struct ibv_xrcd *xrcd_open(struct ibv_context *v, struct ibv_xrcd_init_attr *attr);
int xrcd_close(struct ibv_xrcd *v);

/* ah.c */
struct ah {
	struct ibv_ah v;
	uint32_t num; /* in work requests */
	uint32_t born;
};

static inline struct ah *ah_of(struct ibv_ah *v) { return container_of(v, struct ah, v); }

int ah_to_daemon(const struct ibv_ah_attr *from, struct goroce_ah *to);
int ah_refused(struct ibv_context *v, const struct ibv_ah_attr *attr, int err);
void ah_from_daemon(const struct goroce_ah *from, struct ibv_ah_attr *to);

/* qp.c, qp_modify.c, qp_ex.c, post.c, short.c */

/* A multicast group that a QP is attached to. */
struct membership {
	union ibv_gid gid;
	struct membership *next;
};

struct qp {
	union {
		struct ibv_qp v;
		struct ibv_qp_ex ex;
	};
	struct ring sq, rq;
	struct shared pages;       /* of both rings, one behind the other */
	uint32_t shard, doorbell, born;
	uint32_t async_taken;      /* guarded by the context's table of objects */
	struct ibv_qp_cap cap;
	bool sig_all, has_ex;
	atomic_bool told;          /* why_failed has said why; until the QP is reset */
	uint32_t pd;               /* handle */
	struct region regions[4]; /* looked up last; under the lock of sq */
	struct membership *groups; /* under v.mutex */

	/* From wr_start to wr_complete, under the lock of sq. */
	uint32_t built; /* requests so far */
	int error;
	struct goroce_send_slot *slot; /* being built; NULL after an error */
};

static inline struct qp *qp_of(struct ibv_qp *v) { return container_of(v, struct qp, v); }

/* qp_state is the state that ibv_modify_qp or ibv_query_qp has heard last; of a QP that has failed since it is not ERR.
 * It is for posts: they must not wait for the mutex, which ibv_modify_qp holds while it waits for the daemon. */
static inline enum ibv_qp_state qp_state(const struct ibv_qp *v) { return __atomic_load_n(&v->state, __ATOMIC_RELAXED); }

void why_failed(struct ibv_context *v, uint32_t qpn, uint32_t vendor_err);

struct ibv_qp *qp_create_ex(struct ibv_context *v, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *qp_open(struct ibv_context *v, struct ibv_qp_open_attr *attr);
int qp_set_rate_limit(struct ibv_qp *v, struct ibv_qp_rate_limit_attr *attr);
void qp_set_builders(struct qp *q);
bool qp_takes(const struct ibv_qp *v, unsigned int opcode);
int post_send(struct ibv_qp *v, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int post_recv(struct ibv_qp *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int ring_push_recv(struct ring *r, uint32_t next, const struct ibv_recv_wr *wr);
void post_published(struct qp *q, struct ring *r, uint32_t next);
int post_bind(struct goroce_send_slot *s, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b);
bool short_copy(struct qp *q, struct goroce_send_slot *s, const struct ibv_sge *list, uint32_t n);
void short_built(struct qp *q, struct goroce_send_slot *s);

/* query.c */
int query_device_ex(struct ibv_context *v, const void *input, struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *v, uint8_t port, struct ibv_port_attr *attr, size_t size);
int query_rt_values(struct ibv_context *v, struct ibv_values_ex *values);
int gid_find(struct ibv_context *v, const union ibv_gid *gid);
int gid_at(struct ibv_context *v, uint32_t port, uint32_t index, struct goroce_gid_entry *row);
uint64_t clock_wallclock(struct ibv_context *v, int64_t device);

#endif
