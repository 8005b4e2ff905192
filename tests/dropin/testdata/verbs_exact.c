/*
 * Memory that a program registers is moved to a file, without being asked for, if nothing can be lost by that. A case
 * for each way in which something could.
 */
#include "verbs_move.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

static bool any; /* whether memory is moved does not count */
static int failing; /* which of the next moves of pages by userfaultfd fails; 0: none does */

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if ((request & 0xFFFF) == 0xAA05 && failing && !--failing) { /* UFFDIO_MOVE */
		((int64_t *)arg)[4] = -EBUSY;
		errno = EBUSY;
		return -1;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static void is(char want, const void *at)
{
	if (!any)
		IS(want, sharing(at));
}

/* tried registers memory, and ends the region: it is moved, or not, and keeps its contents. */
static void tried(char want, char *p, size_t length)
{
	struct ibv_mr *m;

	mark(p, length, 3);
	MUST(m = ibv_reg_mr(pd, p, length, ALL));
	is(want, p);
	marked(p, length, 3);
	mark(p, length, 4);
	IS(0, ibv_dereg_mr(m));
	is('p', p);
	marked(p, length, 4);
}

static void pages(void)
{
	char *p = fresh(LENGTH);
	struct ibv_mr *m;

	is('s', buf);
	mark(p, LENGTH, 1);
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	is('s', p);
	marked(p, LENGTH, 1);
	move(m, p);
	mark(p, LENGTH, 2);
	IS(0, ibv_dereg_mr(m));
	is('p', p);
	marked(p, LENGTH, 2);
	tried('s', malloc(1 << 20), 1 << 20); /* a mapping of its own */
	tried('p', malloc(100000), 100000);   /* beside others */
	MUST(!posix_memalign((void **)&p, PAGE, 2 * PAGE));
	tried('s', p, 2 * PAGE);
	tried('p', p + 100, 2 * PAGE - 200);
	tried('p', p, 100);
	tried('s', fresh(20 << 20), 20 << 20); /* in several pieces */
	p = fresh(70 << 20);
	MUST(m = ibv_reg_mr(pd, p, 70 << 20, ALL));
	is('p', p);
}

static int stop_pipe[2];

static void *waits(void *unused __attribute__((unused)))
{
	char c;

	MUST(read(stop_pipe[0], &c, 1) == 1);
	return NULL;
}

/* others: with another thread, memory stays what it is. */
static void others(void)
{
	char *p = fresh(LENGTH);
	pthread_t thread;

	MUST(!pipe(stop_pipe) && !pthread_create(&thread, NULL, waits, NULL));
	tried('p', p, LENGTH);
	MUST(write(stop_pipe[1], "s", 1) == 1 && !pthread_join(thread, NULL));
	tried('s', p, LENGTH);
}

/* What threads store into. */
enum { STORERS = 8, REGIONS = 40 };

static char *moving[REGIONS];
static atomic_int started;
static atomic_bool stopped;

/* increments adds to a word of each region in turn. A store that is lost is missing at the end. */
static void *increments(void *number)
{
	size_t at = (uintptr_t)number * 8 * PAGE;
	uint64_t n = 0;

	atomic_fetch_add(&started, 1);
	for (; !atomic_load(&stopped) || !n; n++) {
		for (int i = 0; i < REGIONS; i++) {
			volatile uint64_t *word = (uint64_t *)(moving[i] + at);
			*word = *word + 1;
		}
	}
	return (void *)(uintptr_t)n;
}

/* summed waits for threads, and looks for what they have stored. */
static void summed(pthread_t *threads)
{
	atomic_store(&stopped, true);
	for (int t = 0; t < STORERS; t++) {
		void *n;
		MUST(!pthread_join(threads[t], &n));
		for (int i = 0; i < REGIONS; i++)
			MUST(*(uint64_t *)(moving[i] + t * 8 * PAGE) == (uintptr_t)n);
	}
}

/* storers: eight threads store while regions end and begin. No store is lost; the pages go back when they are gone. */
static void storers(void)
{
	struct ibv_mr *m[REGIONS], *again;
	char *other = fresh(LENGTH);
	pthread_t threads[STORERS];

	for (int i = 0; i < REGIONS; i++) {
		moving[i] = fresh(LENGTH);
		memset(moving[i], 0, LENGTH);
		MUST(m[i] = ibv_reg_mr(pd, moving[i], LENGTH, ALL));
		is('s', moving[i]);
	}
	for (uintptr_t i = 0; i < STORERS; i++)
		MUST(!pthread_create(&threads[i], NULL, increments, (void *)i));
	while (atomic_load(&started) < STORERS)
		sched_yield();
	for (int i = 0; i < REGIONS; i++) {
		IS(0, ibv_dereg_mr(m[i]));
		is('s', moving[i]);
		MUST(again = ibv_reg_mr(pd, other, LENGTH, ALL));
		is('p', other);
		IS(0, ibv_dereg_mr(again));
	}
	MUST(again = ibv_reg_mr(pd, moving[0], LENGTH, ALL));
	transfer(IBV_WR_RDMA_READ, mr, buf, (uintptr_t)moving[0] + PAGE, again->rkey, PAGE);
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, ibv_dereg_mr(again));
	summed(threads);
	tried('s', other, LENGTH);
	is('p', moving[0]);
	for (int i = 0; i < REGIONS; i++)
		MUST(*(uint64_t *)moving[i] > 0);
}

static volatile uint64_t *handled;
static volatile uint64_t signals;

static void count(int signal __attribute__((unused)))
{
	if (handled)
		(*handled)++;
	signals++;
}

/* handlers: signals come all the time, and their handler stores into the memory. */
static void handlers(void)
{
	const struct itimerval often = {{0, 50}, {0, 50}};
	char *p = fresh(1 << 20);
	struct ibv_mr *m;

	handled = (uint64_t *)(p + (1 << 19));
	signal(SIGALRM, count);
	MUST(!setitimer(ITIMER_REAL, &often, NULL));
	for (int i = 0; i < 30; i++) {
		MUST(m = ibv_reg_mr(pd, p, 1 << 20, ALL));
		is('s', p);
		IS(0, ibv_dereg_mr(m));
		is('p', p);
	}
	MUST(!setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL));
	MUST(signals > 30 && *handled == signals);
}

/* kernel: as long as the kernel may store for the program by itself, memory stays what it is. */
static void kernel(void)
{
	struct io_uring_params params = {0};
	char *p = fresh(LENGTH), *ring;
	aio_context_t aio = 0;
	int fd = (int)syscall(SYS_io_uring_setup, 4, &params);

	if (fd >= 0) {
		tried('p', p, LENGTH);
		ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
		MUST(ring != MAP_FAILED && !close(fd));
		tried('p', p, LENGTH);
		MUST(!munmap(ring, PAGE));
		tried('s', p, LENGTH);
	}
	MUST(!syscall(SYS_io_setup, 4, &aio));
	tried('p', p, LENGTH);
	MUST(!syscall(SYS_io_destroy, aio));
	tried('s', p, LENGTH);
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1); /* UFFD_USER_MODE_ONLY */
	if (fd >= 0) {
		tried('p', p, LENGTH);
		MUST(!close(fd));
	}
	fd = socket(44 /* AF_XDP */, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		tried('p', p, LENGTH);
		MUST(!close(fd));
	}
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		tried('p', p, LENGTH);
		MUST(!close(fd));
	}
	MUST((fd = open("/dev/zero", O_RDWR | O_CLOEXEC)) >= 0);
	tried('s', p, LENGTH);
}

/* placed: moved pages would not be where the program wants them. */
static void placed(void)
{
	enum { BIND = 2 };
	unsigned long first = 1;
	char *p = fresh(LENGTH);

	MUST(!mlock(p, PAGE));
	tried('p', p, LENGTH);
	MUST(!munlock(p, PAGE));
	tried('s', p, LENGTH);
	if (!syscall(SYS_mbind, p + PAGE, PAGE, BIND, &first, 8 * sizeof(first), 0))
		tried('p', p, LENGTH);
	tried('s', fresh(LENGTH), LENGTH);
}

/* advised: what is discarded is zero for the program and its peers, and the kernel takes advice. */
static void advised(void)
{
	char *p = fresh(LENGTH);
	struct ibv_mr *m;

	mark(p, LENGTH, 1);
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	is('s', p);
	IS(0, madvise(p + PAGE, 3 * PAGE, MADV_DONTNEED));
	for (int i = PAGE; i < 4 * PAGE; i++)
		MUST(!p[i]);
	marked(p, PAGE, 1);
	MUST(p[4 * PAGE] == (char)(4 * PAGE * 7 + 4 * PAGE / 1000 + 1));
	memset(buf, 'x', PAGE);
	transfer(IBV_WR_RDMA_READ, mr, buf, (uintptr_t)p + 2 * PAGE, m->rkey, PAGE);
	wait_wc(cq, IBV_WC_SUCCESS);
	for (int i = 0; i < PAGE; i++)
		MUST(!buf[i]);
	IS(0, madvise(p, PAGE, MADV_FREE));
	move(m, p);
	IS(0, ibv_dereg_mr(m));
	is('p', p);
	IS(-1, madvise(p, LENGTH, 12345));
	IS(EINVAL, errno);
	MUST(!madvise(fresh(PAGE), PAGE, MADV_WIPEONFORK));
	tried('p', p, LENGTH); /* from now on nothing is moved */
}

/* forked: a child of fork has a copy, one of clone has no part in the memory. */
static void forked(void)
{
	char *p = fresh(LENGTH);
	int fds[2];
	struct ibv_mr *m;
	pid_t child;

	mark(p, LENGTH, 1);
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	is('s', p);
	MUST((child = fork()) >= 0);
	if (!child) {
		is('p', p);
		marked(p, LENGTH, 1);
		mark(p, LENGTH, 2);
		_exit(0);
	}
	awaited(child);
	marked(p, LENGTH, 1);
	MUST(!pipe(fds));
	MUST((child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)) >= 0);
	if (!child)
		syscall(SYS_exit_group, !any && (syscall(SYS_write, fds[1], p, 1) == 1 || errno != EFAULT));
	awaited(child);
	move(m, p);
	IS(0, ibv_dereg_mr(m));
	is('p', p);
}

/* shared: pages of which another region is memory of the process, or that another context has. */
static void shared(void)
{
	struct ibv_context *one = ctx, *two;
	struct ibv_pd *first = pd;
	char *p = fresh(LENGTH);
	struct ibv_mr *small, *m;

	MUST(small = ibv_reg_mr(pd, p + 100, 100, ALL));
	tried('p', p, LENGTH);
	IS(0, ibv_dereg_mr(small));
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	is('s', p);
	MUST((two = ibv_open_device(ctx->device)) && (pd = ibv_alloc_pd(two)));
	MUST(small = ibv_reg_mr(pd, p, LENGTH / 2, ALL));
	tried('s', fresh(LENGTH), LENGTH);
	pd = first;
	ctx = one;
	move(m, p);
	IS(0, ibv_dereg_mr(m));
	is('s', p); /* the daemon may write to it for the other context */
	IS(0, ibv_dereg_mr(small));
	tried('s', fresh(LENGTH), LENGTH);
	is('p', p);
}

/* grown: what the program maps more of the file goes back, too. */
static void grown(void)
{
	char *p = fresh(LENGTH), *q;
	struct ibv_mr *m;

	IS(0, ibv_dereg_mr(mr)); /* then the file has no other region */
	mark(p, LENGTH, 1);
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	is('s', p);
	MUST((q = mremap(p, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE)) != MAP_FAILED);
	mark(q, 2 * LENGTH, 2);
	IS(0, ibv_dereg_mr(m));
	is('p', q);
	is('p', q + LENGTH);
	marked(q, 2 * LENGTH, 2);
}

/* often: a program that ends regions all the time would wait for copies. */
static void often(void)
{
	char *p = fresh(LENGTH);
	int moved = 0;

	for (int i = 0; i < 200; i++) {
		struct ibv_mr *m = ibv_reg_mr(pd, p, LENGTH, ALL);
		MUST(m);
		moved += sharing(p) == 's';
		IS(0, ibv_dereg_mr(m));
	}
	MUST(any || moved == 64);
}

/* listed registers memory, and prints what the daemon is to list: "KEY KIND WHY". */
static void listed(const char *want, char *p, size_t length, int access)
{
	struct ibv_mr *m = ibv_reg_mr(pd, p, length, access);

	MUST(m);
	printf("%#x %s\n", m->lkey, want);
}

/* reasons: the daemon knows why memory stays memory of the process. */
static void reasons(void)
{
	char *p = fresh(LENGTH), *q = fresh(LENGTH);
	struct ibv_mr *small;
	pthread_t thread;
	int fd;
	char c;

	listed("memfd ", fresh(LENGTH), LENGTH, ALL);
	listed("process short", p, 100, ALL);
	listed("process the daemon may write to its pages for another region", p, LENGTH, ALL);
	listed("process something else is in its pages", q + 100, PAGE, ALL);
	listed("process registered on demand", q, LENGTH, ALL | IBV_ACCESS_ON_DEMAND);
	listed("process 64 MiB are moved already", fresh(65 << 20), 65 << 20, ALL);
	MUST((fd = memfd_create("test", 0)) >= 0 && !ftruncate(fd, LENGTH));
	MUST((q = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
	listed("process not plain private memory", q, LENGTH, ALL);
	q = fresh(LENGTH);
	MUST(!mlock(q, PAGE));
	listed("process locked by mlock", fresh(LENGTH), LENGTH, ALL);
	MUST(!munlock(q, PAGE) && !pipe(stop_pipe) && !pthread_create(&thread, NULL, waits, NULL));
	listed("process other threads run, and userfaultfd cannot make them wait", fresh(LENGTH), LENGTH, ALL);
	MUST(write(stop_pipe[1], "s", 1) == 1 && !pthread_join(thread, NULL));
	for (int i = 0; i < 64; i++) {
		MUST(small = ibv_reg_mr(pd, q, LENGTH, ALL));
		IS(0, ibv_dereg_mr(small));
	}
	listed("process the program ends regions often", q, LENGTH, ALL);
	printf("ready\n");
	fflush(stdout);
	MUST(!read(0, &c, 1));
}

static int pairs[STORERS][2]; /* of sockets */

/* calls has the kernel read and write words of each region, and look at a futex there. */
static void *calls(void *number)
{
	size_t at = (uintptr_t)number * 8 * PAGE;
	const int *fds = pairs[(uintptr_t)number];
	uint64_t n = 0;

	for (; !atomic_load(&stopped) || !n; n++) {
		for (int i = 0; i < REGIONS; i++) {
			uint64_t *out = (uint64_t *)(moving[i] + at), *in = (uint64_t *)(moving[i] + at + PAGE);
			uint32_t *futex = (uint32_t *)(moving[i] + at + 2 * PAGE);
			struct iovec iov = {in, 8};
			struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
			*out = n + 1;
			MUST(write(fds[1], out, 8) == 8 && recvmsg(fds[0], &msg, 0) == 8 && *in == n + 1);
			MUST(syscall(SYS_futex, futex, 128 /* FUTEX_WAIT_PRIVATE */, 1, NULL) < 0 && errno == EAGAIN);
		}
	}
	return (void *)(uintptr_t)n;
}

/* goroce_mappings counts the mappings of the library's files. */
static int goroce_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	MUST(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:goroce-mr") != NULL;
	fclose(f);
	return n;
}

/* frozen: where userfaultfd can make them, other threads wait while memory is moved. */
static void frozen(void)
{
	pthread_t threads[STORERS];
	struct ibv_mr *m[REGIONS], *own;
	char *p = fresh(4 << 20);
	int mappings;

	for (int i = 0; i < REGIONS; i++) {
		moving[i] = fresh(LENGTH);
		memset(moving[i], 0, LENGTH);
	}
	for (uintptr_t i = 0; i < STORERS; i++)
		MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
	for (uintptr_t i = 0; i < STORERS; i++)
		MUST(!pthread_create(&threads[i], NULL, i < STORERS - 2 ? increments : calls, (void *)i));
	for (int i = 0; i < REGIONS; i++) {
		failing = i % 4 == 3;
		MUST(m[i] = ibv_reg_mr(pd, moving[i], LENGTH, ALL));
		is(failing || i % 4 < 3 ? 's' : 'p', moving[i]);
		if (i % 4 == 3) {
			IS(0, ibv_dereg_mr(m[i]));
			MUST(m[i] = ibv_reg_mr(pd, moving[i], LENGTH, ALL));
			is('s', moving[i]);
		}
		move(m[i], moving[i]);
		if (i % 2)
			IS(0, ibv_dereg_mr(m[i]));
	}
	mark(p, 4 << 20, 1);
	mappings = goroce_mappings();
	MUST(own = ibv_reg_mr(pd, p, 4 << 20, ALL));
	is('s', p);
	IS(0, ibv_dereg_mr(own));
	is('s', p);
	marked(p, 4 << 20, 1);
	MUST(any || goroce_mappings() > mappings);
	MUST(!munmap(p, 4 << 20));
	IS(0, ibv_dereg_mr(m[0]));
	MUST(any || goroce_mappings() <= mappings); /* its file is gone */
	summed(threads);
	IS(0, ibv_dereg_mr(m[2])); /* without other threads, all that has ended goes back */
	is('p', moving[0]);
	is('s', moving[4]);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"pages", pages}, {"others", others}, {"storers", storers}, {"handlers", handlers}, {"kernel", kernel},
	{"placed", placed}, {"advised", advised}, {"forked", forked}, {"shared", shared}, {"grown", grown}, {"often", often},
	{"reasons", reasons}, {"frozen", frozen},
};

int main(int argc, char **argv)
{
	MUST(argc >= 2);
	any = argc > 2;
	open_first();
	qp = loop(cq);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	return 1;
}
