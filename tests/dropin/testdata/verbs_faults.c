/*
 * verbs_faults VERB: does a verb again and again, and each time one of the calls of the C library that it makes fails:
 * the first one, then the second one, and so on, until none is left. The verb then fails and has changed nothing, or it
 * goes on without. Or the connection to the daemon has ended, which the next verb and the next poll say.
 *
 * At the end the program says that it has closed all but the device, and waits for the end of its input.
 */
#include "verbs_common.h"

#include "fails.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <time.h>

/* What the library calls by these names comes here. NEXT is the C library's. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

void *malloc(size_t n) { return fails("malloc", ENOMEM) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails("calloc", ENOMEM) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails("realloc", ENOMEM) ? NULL : __libc_realloc(p, n); }

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return fails("mmap", ENOMEM) ? MAP_FAILED : NEXT(mmap)(at, len, prot, flags, fd, offset);
}

int memfd_create(const char *name, unsigned flags)
{
	return fails("memfd_create", EMFILE) ? -1 : NEXT(memfd_create)(name, flags);
}

int ftruncate(int fd, off_t size) { return fails("ftruncate", ENOSPC) ? -1 : NEXT(ftruncate)(fd, size); }

int fcntl(int fd, int command, ...)
{
	va_list args;
	void *arg;

	va_start(args, command);
	arg = va_arg(args, void *);
	va_end(args);
	return fails("fcntl", EBADF) ? -1 : NEXT(fcntl)(fd, command, arg);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return fails("pthread_create", EAGAIN) ? errno : NEXT(pthread_create)(t, attr, run, arg);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	note(msg);
	return fails("sendmsg", ENOBUFS) ? -1 : NEXT(sendmsg)(fd, msg, flags);
}

/* A message is lost, or there is no room for its descriptors. */
ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = NEXT(recvmsg)(fd, msg, flags);

	return n >= 0 && fails("recvmsg", ENOMEM) ? lose(msg, n) : n;
}

/* What each verb finds. */
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct ibv_device **list;

static void set_up(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 2}};

	MUST(ctx = ibv_open_device(list[0]));
	MUST(pd = ibv_alloc_pd(ctx));
	MUST(mr = ibv_reg_mr(pd, buf, SIZE, ALL));
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(cq = ibv_create_cq(ctx, 256, NULL, channel, 0));
	MUST(srq = ibv_create_srq(pd, &init));
	qp = make_qp(IBV_QPT_RC, cq, srq);
	connect_qp(qp, qp->qp_num);
}

static void close_objects(bool gone)
{
	int err = ibv_destroy_qp(qp) | ibv_destroy_srq(srq) | ibv_destroy_cq(cq) | ibv_destroy_comp_channel(channel) |
			ibv_dereg_mr(mr) | ibv_dealloc_pd(pd);

	MUST(gone || !err);
}

/* await_wc polls for ten seconds. */
static int await_wc(struct ibv_wc *wc)
{
	time_t end = time(NULL) + 10;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && time(NULL) < end)
		;
	return n;
}

/* works sends a message by the QP to itself, which takes a receive of the SRQ and two completions of the CQ. It returns
 * false if the connection has ended; then the poll must say so, too. */
static bool works(void)
{
	struct ibv_sge sge = piece(0, 8), to = piece(100, 8);
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad;
	struct ibv_port_attr port;
	struct ibv_wc wc;

	if (ibv_query_port(ctx, 1, &port)) {
		MUST(await_wc(&wc) < 0);
		return false;
	}
	IS(0, ibv_post_srq_recv(srq, &recv, &bad));
	IS(0, post(qp, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, sge));
	for (int i = 0; i < 2; i++) {
		IS(1, await_wc(&wc));
		IS(IBV_WC_SUCCESS, (int)wc.status);
	}
	return true;
}

/* The verbs. Each is prepared while nothing fails, then it is armed, and what it has made is closed when it is not. */
/* proceeds returns whether all calls succeeded, or the verb went on without the one that failed. */
static bool proceeds(bool ok)
{
	disarm();
	MUST(ok || errno);
	MUST(ok || failing);
	return ok;
}

#define MADE(call) ({ arm(); __typeof__(call) made_ = (call); proceeds(made_ != NULL) ? made_ : NULL; })
#define DONE(call) ({ arm(); int err_ = (call); if (err_) errno = err_ < 0 ? -err_ : err_; proceeds(!err_); })
/* A verb that makes something, and the one that ends it. */
#define PAIR(name, make, end) static void name(void) { __typeof__(make) v = MADE(make); if (v) end(v); }

static struct ibv_srq_init_attr small = {.attr = {.max_wr = 4, .max_sge = 1}};
static struct ibv_td_init_attr no_td;
static struct ibv_xrcd_init_attr no_file = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
	.oflags = O_CREAT};

static struct ibv_ah *to_self(void)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};

	ibv_query_gid(ctx, 1, 0, &a.grh.dgid);
	return ibv_create_ah(pd, &a);
}

static struct ibv_qp *simple_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2}};

	return ibv_create_qp(pd, &a);
}

PAIR(open_device, ibv_open_device(list[0]), ibv_close_device)
PAIR(alloc_pd, ibv_alloc_pd(ctx), ibv_dealloc_pd)
PAIR(alloc_td, ibv_alloc_td(ctx, &no_td), ibv_dealloc_td)
PAIR(alloc_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw)
PAIR(open_xrcd, ibv_open_xrcd(ctx, &no_file), ibv_close_xrcd)
PAIR(create_ah, to_self(), ibv_destroy_ah)
PAIR(create_channel, ibv_create_comp_channel(ctx), ibv_destroy_comp_channel)
PAIR(create_cq, ibv_create_cq(ctx, 100, NULL, channel, 0), ibv_destroy_cq)
PAIR(create_srq, ibv_create_srq(pd, &small), ibv_destroy_srq)
PAIR(create_qp, simple_qp(IBV_QPT_RC), ibv_destroy_qp)
PAIR(reg_mr, ibv_reg_mr(pd, buf + 4096, 8192, ALL), ibv_dereg_mr)

static void reg_mr_of_memfd(void)
{
	int fd = memfd_create("memory", MFD_ALLOW_SEALING);
	struct ibv_mr *m;
	void *p;

	IS(0, ftruncate(fd, SIZE));
	IS(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)); /* else the daemon does not map it */
	MUST((p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED);
	m = MADE(ibv_reg_mr(pd, p, SIZE, ALL));
	munmap(p, SIZE); /* as long as it is mapped, the file stays shared */
	close(fd);
	if (m)
		ibv_dereg_mr(m);
}

static void rereg_mr(void)
{
	struct ibv_mr *m = ibv_reg_mr(pd, buf, 8192, ALL);

	MUST(m);
	DONE(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 16384, 8192, 0));
	ibv_dereg_mr(m);
}

static void resize_cq(void)
{
	int before = cq->cqe;

	if (!DONE(ibv_resize_cq(cq, before > 300 ? 256 : 600)))
		IS(before, cq->cqe);
}

static void modify_srq(void)
{
	struct ibv_srq_attr a;

	IS(0, ibv_query_srq(srq, &a));
	a.max_wr = a.max_wr > 2 * DEPTH ? DEPTH : 4 * DEPTH;
	DONE(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR));
}

static void modify_qp(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *v = simple_qp(IBV_QPT_RC);

	MUST(v);
	if (!DONE(ibv_modify_qp(v, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
		IS(IBV_QPS_RESET, (int)v->state);
	ibv_destroy_qp(v);
}

/* A target of an XRC domain, opened a second time. */
static void open_qp(void)
{
	struct ibv_xrcd *x = ibv_open_xrcd(ctx, &no_file);
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x};
	struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.xrcd = x, .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *target, *again;

	MUST(x && (target = ibv_create_qp_ex(ctx, &a)));
	open.qp_num = target->qp_num;
	again = MADE(ibv_open_qp(ctx, &open));
	if (again)
		ibv_destroy_qp(again);
	ibv_destroy_qp(target);
	ibv_close_xrcd(x);
}

static const union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 1, 9}};

static struct ibv_qp *ud_qp(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *v = simple_qp(IBV_QPT_UD);

	MUST(v);
	IS(0, ibv_modify_qp(v, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	return v;
}

static void attach_mcast(void)
{
	struct ibv_qp *v = ud_qp();

	if (DONE(ibv_attach_mcast(v, &group, 0)))
		IS(0, ibv_detach_mcast(v, &group, 0));
	ibv_destroy_qp(v);
}

static void detach_mcast(void)
{
	struct ibv_qp *v = ud_qp();

	IS(0, ibv_attach_mcast(v, &group, 0));
	if (!DONE(ibv_detach_mcast(v, &group, 0)))
		ibv_detach_mcast(v, &group, 0);
	ibv_destroy_qp(v);
}

/* What a verb that ends something leaves behind, the next one ends. */
#define END(name, make, end) \
	static void name(void) { __typeof__(make) v = make; MUST(v); if (!DONE(end(v))) end(v); }

END(dealloc_pd, ibv_alloc_pd(ctx), ibv_dealloc_pd)
END(dealloc_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw)
END(close_xrcd, ibv_open_xrcd(ctx, &no_file), ibv_close_xrcd)
END(destroy_ah, to_self(), ibv_destroy_ah)
END(destroy_channel, ibv_create_comp_channel(ctx), ibv_destroy_comp_channel)
END(destroy_cq, ibv_create_cq(ctx, 100, NULL, channel, 0), ibv_destroy_cq)
END(destroy_srq, ibv_create_srq(pd, &small), ibv_destroy_srq)
END(destroy_qp, simple_qp(IBV_QPT_RC), ibv_destroy_qp)
END(dereg_mr, ibv_reg_mr(pd, buf + 4096, 8192, ALL), ibv_dereg_mr)

#define VERB(name) { #name, name }

static const struct {
	const char *name;
	void (*verb)(void);
} verbs[] = {
	VERB(open_device), VERB(alloc_pd), VERB(alloc_td), VERB(alloc_mw), VERB(open_xrcd), VERB(create_ah),
	VERB(create_channel), VERB(create_cq), VERB(create_srq), VERB(create_qp), VERB(reg_mr), VERB(reg_mr_of_memfd),
	VERB(rereg_mr), VERB(resize_cq), VERB(modify_srq), VERB(modify_qp), VERB(open_qp), VERB(attach_mcast), VERB(detach_mcast),
	VERB(dealloc_pd), VERB(dealloc_mw), VERB(close_xrcd), VERB(destroy_ah), VERB(destroy_channel),
	VERB(destroy_cq), VERB(destroy_srq), VERB(destroy_qp), VERB(dereg_mr),
};

static void walk(void (*verb)(void))
{
	bool hit = true, gone = false;

	for (fault = 1; hit; fault++) {
		if (gone)
			set_up();
		verb();
		hit = failing;
		gone = !works();
		if (hit)
			printf("call %d, of %s: %s\n", fault, failing, gone ? "the connection has ended" : "goes on");
		if (gone) {
			close_objects(true);
			ibv_close_device(ctx);
		}
	}
	MUST(!gone);
}

int main(int argc, char **argv)
{
	char byte;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST((list = ibv_get_device_list(NULL)) && list[0]);
	MUST(!posix_memalign((void **)&buf, 4096, SIZE));
	memset(buf, 0, SIZE);
	set_up();
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		if (argc == 2 && !strcmp(argv[1], verbs[i].name))
			walk(verbs[i].verb);
		else if (argc == 1)
			puts(verbs[i].name);
	}
	close_objects(false);
	print_requests();
	puts("all is closed but the device");
	IS(0, (int)read(0, &byte, 1));
	IS(0, ibv_close_device(ctx));
	return 0;
}
