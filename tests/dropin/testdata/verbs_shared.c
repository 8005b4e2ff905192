/*
 * Memory that is shared from files. `verbs_shared all DIRECTORY` registers memory of each sort, which the daemon must
 * read and write, and says what the daemon should list: "KEY KIND NAME". Then it waits for the end of its input. DIRECTORY
 * is on a disk. `verbs_shared privileged DIRECTORY` is for a process with CAP_CHECKPOINT_RESTORE, whose closed files
 * are found, too. `verbs_shared refused` meets a limit, `verbs_shared shrink` truncates memory that is registered.
 *
 * The daemon maps memfds that cannot shrink, and nobody can map those for writing then: whatever maps one here does so
 * before it is registered.
 */
#include "verbs_move.h"

#include <sys/stat.h>

enum { PIECE = 4 * PAGE };

static bool privileged;

static const char *if_privileged(void) { return privileged ? "memfd" : "process"; }

static char *map(int fd, size_t length, int prot, int flags, off_t offset)
{
	char *p = mmap(NULL, length, prot, flags, fd, offset);

	MUST(p != MAP_FAILED);
	return p;
}

static char *shared(int fd) { return map(fd, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, 0); }

/* sealed makes a memfd. */
static int sealed(size_t length, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && !ftruncate(fd, (off_t)length) && !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static int memfd(size_t length) { return sealed(length, F_SEAL_SHRINK); }

static char path[64];

static int shm(void)
{
	static int n;

	snprintf(path, sizeof(path), "/dev/shm/goroce-test-%d-%d", getpid(), n++);
	unlink(path); /* of a process that had this PID, and was killed */
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	MUST(fd >= 0 && !ftruncate(fd, PIECE));
	return fd;
}

static struct ibv_mr *reg(const char *kind, const char *name, char *at, size_t length)
{
	struct ibv_mr *m = ibv_reg_mr(pd, at, length, ALL);

	MUST(m);
	move(m, at);
	printf("%#x %s %s\n", m->lkey, kind, name);
	return m;
}

/* Seals of memfds. */
static void seals(void)
{
	int fd = memfd(PIECE);
	char *p = shared(fd), *other = shared(fd);
	struct ibv_mr *m = reg("memfd", "memfd", p + 100, PIECE - 200);

	move(m, other + 100);
	IS(-1, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PIECE));
	IS(EPERM, errno);
	IS(-1, madvise(other, PIECE, MADV_REMOVE));
	IS(EPERM, errno);
	MUST(mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	reg("process", "memfd that may shrink", shared(sealed(PIECE, 0)), PIECE);
	reg("process", "memfd that cannot be sealed any more", shared(sealed(PIECE, F_SEAL_SHRINK | F_SEAL_SEAL)), PIECE);
	p = shared(fd = memfd(PIECE));
	MUST(!fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	reg("process", "memfd that the program has sealed against writing", p, PIECE);
}

/* Descriptors of the program's. */
static void descriptors(void)
{
	int fd, mode;
	char link[64];
	char *p = shared(fd = memfd(PIECE));

	close(fd);
	reg(if_privileged(), "memfd that was closed", p, PIECE);
	p = shared(fd = memfd(PIECE));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	MUST((mode = open(link, O_RDONLY | O_CLOEXEC)) >= 0);
	close(fd);
	reg("process", "memfd that is open for reading", p, PIECE);
	MUST(dup2(memfd(PIECE), mode) == mode);
	reg(if_privileged(), "memfd whose descriptor is another's now", p, PIECE);
}

/* Memory that is registered again, which the daemon can map only as long as it has it. */
static void again(void)
{
	int fd = memfd(PIECE);
	char *p = shared(fd), *gone;
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_pd *theirs = ibv_alloc_pd(other);
	struct ibv_mr *m;

	IS(0, ibv_dereg_mr(ibv_reg_mr(pd, p, PIECE, ALL)));
	reg("memfd", "memfd, registered again", p, PIECE);
	close(fd);
	m = reg("memfd", "memfd that was closed, registered again", p + PAGE, PAGE);
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p, PIECE, 0));
	move(m, p);
	p = shared(fd = memfd(PIECE));
	reg("memfd", "memfd, for the first device", p, PIECE);
	MUST(m = ibv_reg_mr(theirs, p, PIECE, ALL));
	printf("%#x memfd for the second device\n", m->lkey);
	p = shared(fd = memfd(PIECE));
	MUST(m = ibv_reg_mr(theirs, p, PIECE, ALL));
	IS(0, ibv_dereg_mr(m));
	reg("memfd", "memfd that the second device had before", p, PIECE);

	MUST((fd = memfd_create("unmapped", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0);
	MUST(!ftruncate(fd, PIECE) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	gone = shared(fd);
	m = ibv_reg_mr(pd, gone, PIECE, ALL);
	MUST(m);
	move(m, gone);
	IS(0, ibv_dereg_mr(m));
	munmap(gone, PIECE);
	close(fd);
	reg("memfd", "memfd after one that is gone", shared(memfd(PIECE)), PIECE);
}

/* Files with names, in which anybody who may open them can make holes. */
static void names(const char *dir)
{
	char file[256];
	char *p = shared(shm());

	reg("process", "file in /dev/shm", p, PIECE);
	unlink(path);
	int fd = shm();
	p = shared(fd);
	close(fd);
	reg("process", "file in /dev/shm that was closed", p, PIECE);
	unlink(path);
	MUST(mkfifo(path, 0600) == 0); /* to open it would take for ever */
	reg("process", "file in /dev/shm with another in its place", p, PIECE);
	unlink(path);
	snprintf(file, sizeof(file), "%s/goroce-test", dir);
	MUST((fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0 && !ftruncate(fd, PIECE));
	p = shared(fd);
	reg("process", "file on a disk", p, PIECE);
	unlink(file);
}

static char *view(int fd, size_t pages, off_t first)
{
	return map(fd, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, first * PAGE);
}

/* place maps a page of a file at an address. */
static void place(char *at, int fd, off_t page)
{
	MUST(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, page * PAGE) == at);
}

/* Mappings that are, and are not, one piece of one file. */
static void mappings(void)
{
	int fd = memfd(8 * PAGE);
	char *p = view(fd, 4, 3), *whole = view(fd, 8, 0), *out_of_order = view(fd, 4, 3), *two_files = view(fd, 4, 3),
	     *partly = view(fd, 4, 3);
	struct ibv_mr *m;

	place(out_of_order + PAGE, fd, 0);
	place(two_files + PAGE, memfd(8 * PAGE), 4);
	MUST(mmap(partly + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) ==
			partly + 3 * PAGE);
	m = reg("memfd", "part of a file", p + 123, 4 * PAGE - 1000);
	move(m, whole + 3 * PAGE + 123);
	MUST(!madvise(p + PAGE, PAGE, MADV_DONTDUMP));
	m = reg("memfd", "three mappings in order", p + 5, 4 * PAGE - 5);
	move(m, whole + 3 * PAGE + 5);
	reg("process", "pieces of a file out of order", out_of_order, 4 * PAGE);
	reg("process", "two files", two_files, 4 * PAGE);
	reg("memfd", "memory beside that of another file", two_files + 2 * PAGE, 2 * PAGE);
	reg("process", "partly a file", partly + 2 * PAGE, 2 * PAGE);
	reg("process", "private", map(fd, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0), PIECE);
	reg("process", "shared without a file",
			map(-1, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, 0), PIECE);
	reg("process", "malloc", malloc(PIECE), PIECE);
	MUST(m = ibv_reg_mr(pd, map(fd, PIECE, PROT_READ, MAP_SHARED, 0), PIECE, IBV_ACCESS_REMOTE_READ));
	printf("%#x process to be read only\n", m->lkey);
	MUST(m = ibv_reg_mr(pd, whole, 8 * PAGE, ALL | IBV_ACCESS_ON_DEMAND));
	move(m, whole);
	printf("%#x process on demand\n", m->lkey);
	MUST(m = ibv_reg_mr_iova(pd, whole, 8 * PAGE, (uintptr_t)whole, ALL));
	move(m, whole);
	printf("%#x memfd by ibv_reg_mr_iova\n", m->lkey);
}

/* What becomes of memory that is registered. */
static void changes(void)
{
	const int moves = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	char *other = malloc(PIECE), *p = shared(memfd(PIECE));
	struct ibv_mr *m = reg("process", "a file that was registered anew", p, PIECE);

	IS(0, ibv_rereg_mr(m, moves, NULL, other, PIECE, ALL));
	move(m, other);
	m = reg("memfd", "other memory that was registered anew", malloc(PIECE), PIECE);
	IS(0, ibv_rereg_mr(m, moves, NULL, p + 7, PIECE - 7, ALL));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
	move(m, p + 7);

	/* As pinned pages do, the region stays what was registered. */
	int fd = memfd(PIECE);
	char *before = shared(fd);
	p = shared(fd);
	m = reg("memfd", "memory that was mapped anew", p, PIECE);
	MUST(mmap(p, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == p);
	move(m, before);
	for (int i = 0; i < PIECE; i++)
		MUST(!p[i]);
}

/* Locks that the program has of a file stay: to close any descriptor of the file would give them up. */
static void locks(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = memfd(PIECE), status;
	char *p = shared(fd);

	MUST(!fcntl(fd, F_SETLK, &lock));
	reg("memfd", "file that is locked", p, PIECE);
	pid_t child = fork();
	MUST(child >= 0);
	if (!child) {
		MUST(!fcntl(fd, F_GETLK, &lock));
		_exit(lock.l_type == F_WRLCK ? 0 : 1);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	close(fd);
}

/* child_uses has a child open a device of its own, and register memory. */
static void child_uses(char *p, const char *says)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		open_first();
		qp = loop(cq);
		move(ibv_reg_mr(pd, p, PIECE, ALL), p);
		strcpy(p, says);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	MUST(!strcmp(p, says));
}

/* What a peer writes into the memory of a child its parent sees. The daemon maps it for both, as long as one of them has
 * it registered. */
static void forked(void)
{
	char *p = shared(memfd(PIECE));
	pid_t child;

	reg("memfd", "memory that a child uses, too", p, PIECE);
	child_uses(p, "child");
	reg("memfd", "memory that a child has used, too", p, PIECE);
	p = shared(memfd(PIECE));
	child_uses(p, "first"); /* the daemon may have it still, or not */
	move(ibv_reg_mr(pd, p, PIECE, ALL), p);
	child = fork();
	MUST(child >= 0);
	if (!child)
		pause();
	move(mr, buf); /* while a child shares all of it, copy on write or not */
	move(ibv_reg_mr(pd, p, PIECE, ALL), p);
	kill(child, SIGKILL);
	MUST(waitpid(child, NULL, 0) == child);
}

/* An access to memory that is not there any more is an error of the QP, and the device goes on. */
static void shrink(void)
{
	int fd = sealed(PIECE, 0);
	char *p = shared(fd);
	struct ibv_mr *m = ibv_reg_mr(pd, p, PIECE, ALL);
	struct ibv_async_event event;

	MUST(m);
	move(m, p);
	MUST(!ftruncate(fd, 0));
	transfer(IBV_WR_RDMA_WRITE, mr, buf, (uintptr_t)p, m->rkey, 100);
	IS(0, ibv_get_async_event(ctx, &event));
	IS(IBV_EVENT_QP_ACCESS_ERR, (int)event.event_type);
	ibv_ack_async_event(&event);
	wait_wc(cq, IBV_WC_WR_FLUSH_ERR); /* its peer is itself */
	MUST(!ftruncate(fd, PIECE));
	qp = loop(cq);
	move(m, p);
}

/* What the daemon's limit of pinned memory does not allow it still reads and writes. */
static void refused(void)
{
	const size_t large = 1 << 20;

	reg("memfd", "file within the limit", shared(memfd(PIECE)), PIECE);
	reg("process", "file beyond the limit", map(memfd(large), large, PROT_READ | PROT_WRITE, MAP_SHARED, 0), large);
}

int main(int argc, char **argv)
{
	char c;

	MUST(argc > 2);
	privileged = !strcmp(argv[1], "privileged");
	open_first();
	qp = loop(cq);
	if (!strcmp(argv[1], "shrink")) {
		shrink();
		return 0;
	}
	if (!strcmp(argv[1], "refused")) {
		refused();
	} else {
		seals();
		descriptors();
		again();
		names(argv[2]);
		mappings();
		changes();
		locks();
		forked();
	}
	printf("ready\n");
	fflush(stdout);
	MUST(!read(0, &c, 1));
	return 0;
}
