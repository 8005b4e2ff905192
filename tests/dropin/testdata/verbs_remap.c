/*
 * GOROCE_MR=remap: memory of the process is moved to a file, which the daemon maps. `verbs_remap all` registers memory of
 * each sort and says what the daemon should list: "KEY KIND NAME". Then it waits for the end of its input. The other
 * cases end by themselves.
 */
#include "verbs_move.h"

#include <malloc.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Which call of the library fails, counted from the next one; with removed, after it has unmapped what was there. */
static struct {
	int file, map, fill, place; /* 0: none fails; 1: the next one; -1: all */
	bool removed;
} failing;

static bool fails(int *n) { return *n < 0 || (*n && !--*n); }

void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	va_list args;
	void *to;

	va_start(args, flags);
	to = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
	va_end(args);
	if (flags & MREMAP_FIXED ? fails(&failing.place) : !old_len && fails(&failing.map)) {
		if (failing.removed)
			munmap(to, len);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mremap, old, old_len, len, flags, to);
}

int madvise(void *at, size_t len, int advice)
{
	if (advice == 23 /* MADV_POPULATE_WRITE */ && fails(&failing.fill)) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_madvise, at, len, advice);
}

int memfd_create(const char *name, unsigned int flags)
{
	if (!strcmp(name, "goroce-mr") && fails(&failing.file)) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

/* brief registers memory, whose contents must stay. */
static struct ibv_mr *brief(char is, char *at, size_t length)
{
	struct ibv_mr *m;

	mark(at, length, 3);
	MUST(m = ibv_reg_mr(pd, at, length, ALL));
	marked(at, length, 3);
	move(m, at);
	IS(is, sharing(at));
	return m;
}

/* reg is brief for a region that stays. */
static struct ibv_mr *reg(const char *kind, const char *name, char *at, size_t length)
{
	struct ibv_mr *m = brief(!strcmp(kind, "process") ? 'p' : 's', at, length);

	printf("%#x %s %s\n", m->lkey, kind, name);
	return m;
}

/* Private memory, wherever it begins and ends. */
static void moved(void)
{
	char *p = fresh(LENGTH), *array = malloc(LENGTH);
	static char globals[LENGTH] __attribute__((aligned(4096))); /* with a page of their own before */

	reg("memfd", "mapped memory", p, LENGTH);
	reg("memfd", "malloc", array, LENGTH);
	reg("memfd", "global variables", globals, LENGTH);
	p = fresh(LENGTH);
	reg("memfd", "whole and parts of pages", p + 100, LENGTH - 3000);
	p = fresh(LENGTH);
	MUST(!madvise(p + 9 * PAGE, PAGE, MADV_DONTDUMP));
	reg("memfd", "three mappings", p, LENGTH);
	reg("process", "little", fresh(LENGTH), 4 * PAGE);
	struct ibv_mr *m = ibv_reg_mr(pd, fresh(LENGTH), LENGTH, IBV_ACCESS_REMOTE_READ);
	MUST(m);
	printf("%#x memfd only read by peers\n", m->lkey);
}

/* stacks registers memory of the stacks of this thread and of another. */
static void *stacks(void *others)
{
	char own[LENGTH] = {0};

	IS(0, ibv_dereg_mr(brief('p', own, LENGTH)));
	IS(0, ibv_dereg_mr(brief('p', others, LENGTH)));
	return NULL;
}

/* Memory that is not moved. */
static void unmoved(void)
{
	pthread_t thread;
	char local[LENGTH] = {0}, *p = fresh(LENGTH);
	struct ibv_mr *m;

	MUST(!pthread_create(&thread, NULL, stacks, local) && !pthread_join(thread, NULL));
	reg("process", "stack", local, LENGTH);
	IS(0, mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	reg("process", "memory that is code", p, LENGTH);
	p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd_create("test", 0), 0);
	MUST(p != MAP_FAILED);
	m = ibv_reg_mr(pd, p, LENGTH, ALL);
	MUST(!m && errno == EFAULT); /* it is behind the end of the file */
	int fd = memfd_create("test", 0);
	MUST(!ftruncate(fd, LENGTH));
	p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	reg("process", "private pages of a file", p, LENGTH);
	p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	m = ibv_reg_mr(pd, p, LENGTH, ALL);
	printf("%#x process the program's own file\n", m->lkey);
	MUST(m = ibv_reg_mr(pd, fresh(LENGTH), LENGTH, ALL | IBV_ACCESS_ON_DEMAND));
	IS('p', sharing(m->addr));
	printf("%#x process on demand\n", m->lkey);
	p = fresh(LENGTH);
	m = brief('s', p, LENGTH);
	MUST(mmap(p, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == p);
	struct ibv_mr *other = brief('p', p, LENGTH); /* whose place in the file is taken */
	IS(0, ibv_dereg_mr(m));
	IS(0, ibv_dereg_mr(other));
	marked(p, LENGTH - 3000, 3); /* nothing was put back over it */
	m = brief('s', p, LENGTH); /* as the first region is gone */
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, local, LENGTH, 0));
	IS('p', sharing(p));
	printf("%#x process registered anew\n", m->lkey);
	MUST(m = ibv_reg_mr(pd, p, 1, ALL));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p, LENGTH, 0));
	IS('s', sharing(p));
	printf("%#x memfd registered anew, larger\n", m->lkey);
	move(m, p);
}

/* Regions that share pages. The last one takes them back. */
static void overlaps(void)
{
	char *p = fresh(LENGTH);
	struct ibv_mr *all[4], *beside;

	all[0] = brief('s', p, LENGTH / 2);
	all[1] = brief('s', p + LENGTH / 4 + 10, LENGTH / 2);
	all[2] = brief('s', p, LENGTH);
	all[3] = brief('s', p + 10, PAGE);
	IS(0, ibv_dereg_mr(all[2]));
	IS('p', sharing(p + LENGTH - PAGE));
	MUST(beside = ibv_reg_mr(pd, p + LENGTH / 4 * 3 + PAGE / 2, PAGE, ALL));
	printf("%#x process little, only its first half moved\n", beside->lkey);
	IS('s', sharing(p));
	move(all[0], p);
	IS(0, ibv_dereg_mr(all[0]));
	IS('s', sharing(p)); /* the little one */
	IS('p', sharing(p + 2 * PAGE));
	move(all[1], p + LENGTH / 4 + 10);
	mark(p, LENGTH, 5);
	IS(0, ibv_dereg_mr(all[3]));
	IS(0, ibv_dereg_mr(all[1]));
	marked(p, LENGTH, 5);
	for (int i = 0; i < LENGTH; i += PAGE)
		IS('p', sharing(p + i));
	IS(0, madvise(p, LENGTH, MADV_DONTNEED));
	for (int i = 0; i < LENGTH; i++)
		MUST(!p[i]);
	move(beside, p + LENGTH / 4 * 3 + PAGE / 2);
}

/* Blocks of the heap, whose first and last pages are others', too. */
static void neighbours(void)
{
	enum { BLOCKS = 40, SMALL = 1000, LARGE = 70000 };
	char *small[BLOCKS], *large[BLOCKS];
	struct ibv_mr *m[BLOCKS];

	mallopt(M_MMAP_THRESHOLD, 1 << 26); /* which sanitizers do not know */
	for (int i = 0; i < BLOCKS; i++) {
		MUST((small[i] = malloc(SMALL)) && (large[i] = malloc(LARGE)));
		mark(small[i], SMALL, i);
		mark(large[i], LARGE, i);
	}
	for (int i = 0; i < BLOCKS; i++)
		MUST(m[i] = ibv_reg_mr(pd, large[i], LARGE, ALL));
	for (int i = 0; i < BLOCKS; i++) {
		marked(small[i], SMALL, i);
		marked(large[i], LARGE, i);
		move(m[i], large[i]);
		mark(small[i], SMALL, -i);
		mark(large[i], LARGE, -i);
		free(malloc(LARGE / 2));
	}
	for (int i = 0; i < BLOCKS; i += 2) /* free blocks beside those that are registered */
		IS(0, ibv_dereg_mr(m[i]));
	for (int i = 0; i < BLOCKS; i++)
		marked(large[i], LARGE, -i);
	for (int i = 0; i < BLOCKS; i += 2) {
		char *zeros;
		free(large[i]);
		MUST(zeros = calloc(1, LARGE));
		for (int k = 0; k < LARGE; k++)
			MUST(!zeros[k]);
		free(zeros);
	}
	for (int i = 1; i < BLOCKS; i += 2) {
		marked(small[i], SMALL, -i);
		marked(large[i], LARGE, -i);
		move(m[i], large[i]);
		IS(0, ibv_dereg_mr(m[i]));
		free(large[i]);
	}
	malloc_trim(0);
}

/* Memory that the program gives another address while it is registered. */
static void relocated(void)
{
	char *p = fresh(LENGTH), *q;
	int fds[2];
	struct ibv_mr *m = brief('s', p, LENGTH);

	MUST((q = mremap(p, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE)) != MAP_FAILED);
	move(m, q);
	mark(q, LENGTH, 9);
	IS(0, ibv_dereg_mr(m));
	IS('p', sharing(q));
	marked(q, LENGTH, 9);
	p = fresh(LENGTH);
	m = brief('s', p, LENGTH);
	IS(0, mprotect(p, PAGE, PROT_NONE));
	IS(0, ibv_dereg_mr(m));
	IS('p', sharing(p));
	MUST(!pipe(fds)); /* the page is still protected: the kernel cannot read it */
	IS(-1, (int)write(fds[1], p, 1));
	IS(EFAULT, errno);
	IS(0, mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	marked(p, LENGTH - 3000, 3);
}

/* own_device has a child open the device itself, and register memory of the parent's. */
static void own_device(char *p)
{
	struct ibv_mr *m;

	open_first();
	qp = loop(cq);
	mark(p, LENGTH, 6);
	MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
	IS('s', sharing(p));
	move(m, p);
	mark(p, LENGTH, 7);
	IS(0, ibv_dereg_mr(m));
	marked(p, LENGTH, 7);
}

/* A child has what its parent had, and neither sees what the other stores then. */
static void forked(void)
{
	char *p = fresh(LENGTH);
	struct ibv_mr *m = ibv_reg_mr(pd, p, LENGTH, ALL);
	int ready[2], go[2];
	pid_t child;
	char c;

	MUST(m && !pipe(ready) && !pipe(go));
	IS('s', sharing(p));
	mark(p, LENGTH, 1);
	fflush(stdout);
	for (int round = 0; round < 3; round++) {
		MUST((child = fork()) >= 0);
		if (!child) {
			IS('p', sharing(p));
			MUST(write(ready[1], "r", 1) == 1 && read(go[0], &c, 1) == 1); /* the parent has stored */
			marked(p, LENGTH, 1);
			mark(p, LENGTH, 2);
			IS(0, ibv_dereg_mr(m)); /* which leaves the memory, and the region of the parent, as they are */
			IS('p', sharing(p));
			marked(p, LENGTH, 2);
			if (round == 1)
				own_device(p);
			if (round == 2)
				IS(0, ibv_close_device(ctx));
			_exit(0);
		}
		MUST(read(ready[0], &c, 1) == 1);
		memset(p, 'x', LENGTH);
		IS('s', sharing(p));
		move(m, p);
		MUST(write(go[1], "g", 1) == 1);
		awaited(child);
		MUST(p[0] == 'x' && p[LENGTH / 2] == 'x');
		mark(p, LENGTH, 1);
	}
	MUST((child = fork()) >= 0); /* one that ends at once */
	if (!child)
		_exit(0);
	awaited(child);
	MUST(!posix_spawn(&child, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, NULL));
	awaited(child);
	marked(p, LENGTH, 1);
	failing.map = -1; /* no copies: the child has the parent's memory, and the parent goes on */
	MUST((child = fork()) >= 0);
	failing.map = 0;
	if (!child) {
		IS('s', sharing(p));
		marked(p, LENGTH, 1);
		_exit(0);
	}
	awaited(child);
	marked(p, LENGTH, 1);
	move(m, p);
	mark(p, LENGTH, 1);
	IS(0, ibv_dereg_mr(m));
	IS('p', sharing(p));
	marked(p, LENGTH, 1);
}

/* heaped has a child use the heap, in whose pages what malloc writes beside blocks was moved with them. */
static void heaped(void)
{
	enum { BLOCKS = 4, BLOCK = 100000 };
	char *blocks[BLOCKS];
	pid_t child;

	for (int i = 0; i < BLOCKS; i++) {
		MUST(blocks[i] = malloc(BLOCK));
		mark(blocks[i], BLOCK, i);
		MUST(ibv_reg_mr(pd, blocks[i], BLOCK, ALL));
		IS('s', sharing(blocks[i]));
	}
	for (int round = 0; round < 3; round++) {
		fflush(stdout);
		MUST((child = fork()) >= 0);
		for (int i = 0; i < 100; i++) /* both of them, at once */
			free(malloc((size_t)i * 1000));
		for (int i = 0; i < BLOCKS; i++)
			marked(blocks[i], BLOCK, i);
		if (!child) {
			for (int i = 0; i < BLOCKS; i++)
				free(blocks[i]);
			MUST(malloc_trim(0) >= 0);
			exit(0);
		}
		awaited(child);
	}
}

/* unharmed registers memory while something fails: it is not moved, and keeps what it has. */
static void unharmed(const char *name)
{
	char *p = fresh(LENGTH);

	MUST(!madvise(p + 9 * PAGE, PAGE, MADV_DONTDUMP)); /* three mappings */
	reg("process", name, p, LENGTH);
	memset(&failing, 0, sizeof(failing));
	for (int i = 0; i < LENGTH; i += PAGE)
		IS('p', sharing(p + i));
}

/* stays ends a region while something fails: the memory stays in the file, and may be registered again. */
static void stays(void)
{
	int *const all[] = {&failing.place, &failing.map};
	struct ibv_mr *m;
	char *p = NULL;

	for (int i = 0; i < 4; i++) {
		p = fresh(LENGTH);
		mark(p, LENGTH, 4);
		MUST(m = ibv_reg_mr(pd, p, LENGTH, ALL));
		*all[i / 2] = 1;
		failing.removed = i & 1;
		IS(0, ibv_dereg_mr(m));
		memset(&failing, 0, sizeof(failing));
		IS('s', sharing(p));
		marked(p, LENGTH, 4);
	}
	reg("memfd", "memory that could not be taken back", p, LENGTH);
}

static void failures(void)
{
	struct rlimit limit = {1 << 20, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};

	IS(0, setrlimit(RLIMIT_FSIZE, &limit));
	unharmed("files may not be long");
	IS(0, setrlimit(RLIMIT_FSIZE, &none));
	for (int i = 1; i < 4; i++) {
		failing.fill = i + 1; /* the library looks first whether the memory is there */
		unharmed("no memory for a copy");
		failing.map = i;
		unharmed("no mapping of the file");
		failing.place = i;
		unharmed("no mapping");
		failing.place = i;
		failing.removed = true;
		unharmed("no mapping, and the old one is gone");
	}
	stays();
}

/* Regions that are left open when the device is closed. */
static void left(void)
{
	char *p = fresh(LENGTH);

	mark(p, LENGTH, 8);
	MUST(ibv_reg_mr(pd, p, LENGTH, ALL));
	IS('s', sharing(p));
	IS(0, ibv_close_device(ctx));
	IS('p', sharing(p));
	marked(p, LENGTH, 8);
}

/* file_memory returns how much memory the library's files take. */
static uint64_t file_memory(void)
{
	uint64_t all = 0;
	char path[64], name[64];
	struct stat st;

	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, name, sizeof(name) - 1);
		if (n < 0)
			continue;
		name[n] = 0;
		if (strstr(name, "memfd:goroce-mr") && !fstat(fd, &st))
			all += (uint64_t)st.st_blocks * 512;
	}
	return all;
}

/* A region that stays does not keep the memory of all that came and went beside it. */
static void worn(void)
{
	enum { STEP = 4 << 20 };
	char *kept = fresh(LENGTH), *p = fresh(40 * STEP);
	struct ibv_mr *m = brief('s', kept, LENGTH);

	IS(0, ibv_dereg_mr(mr));
	for (int i = 0; i < 40; i++) {
		struct ibv_mr *passing = ibv_reg_mr(pd, p + i * STEP, STEP, ALL);
		MUST(passing);
		IS('s', sharing(p + i * STEP));
		IS(0, ibv_dereg_mr(passing));
		IS(0, munmap(p + i * STEP, STEP));
	}
	MUST(file_memory() < 80 << 20);
	IS(0, ibv_dereg_mr(m));
	marked(kept, LENGTH - 3000, 3);
	MUST(file_memory() == 0);
}

static void *registers(void *arg)
{
	char *own = fresh(LENGTH);

	for (int i = 0; i < 30; i++) {
		struct ibv_mr *mine, *ours;
		mark(own, LENGTH, i);
		MUST(mine = ibv_reg_mr(pd, own, LENGTH, ALL));
		MUST(ours = ibv_reg_mr(pd, (char *)arg + i * 100, LENGTH - 10000, ALL));
		marked(own, LENGTH, i);
		marked(arg, LENGTH, 6);
		if (i % 10 == 0) {
			pid_t child = fork();
			MUST(child >= 0);
			if (!child)
				_exit(own[5] != (char)(35 + i));
			awaited(child);
		}
		IS(0, ibv_dereg_mr(ours));
		IS(0, ibv_dereg_mr(mine));
		marked(own, LENGTH, i);
	}
	munmap(own, LENGTH);
	return NULL;
}

/* Threads that register, each memory of its own and some that all have, and fork. */
static void threads(void)
{
	char *p = fresh(LENGTH);
	pthread_t all[4];

	mark(p, LENGTH, 6);
	for (int i = 0; i < 4; i++)
		MUST(!pthread_create(&all[i], NULL, registers, p));
	for (int i = 0; i < 4; i++)
		MUST(!pthread_join(all[i], NULL));
	IS('p', sharing(p));
	marked(p, LENGTH, 6);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"forked", forked}, {"heaped", heaped}, {"left", left}, {"threads", threads}, {"neighbours", neighbours}, {"worn", worn},
};

int main(int argc, char **argv)
{
	char c;

	MUST(argc == 2);
	failing.file = !strcmp(argv[1], "failures");
	open_first();
	MUST(!failing.file);
	IS(!strcmp(argv[1], "failures") ? 'p' : 's', sharing(buf));
	qp = loop(cq);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	if (!strcmp(argv[1], "failures")) {
		failures();
	} else {
		moved();
		unmoved();
		overlaps();
		relocated();
	}
	printf("ready\n");
	fflush(stdout);
	MUST(!read(0, &c, 1));
	return 0;
}
