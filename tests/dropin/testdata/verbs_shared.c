/*
 * Memory that is shared from files. `verbs_shared all DIRECTORY` registers memory of each sort, which the daemon must
 * read and write, and says what the daemon should list: "KEY KIND NAME". Then it waits for the end of its input. DIRECTORY
 * is on a disk. `verbs_shared privileged DIRECTORY` is for a process with CAP_CHECKPOINT_RESTORE, whose closed files
 * are found, too. `verbs_shared refused` meets a limit, `verbs_shared shrink` truncates memory that is registered.
 */
#include "verbs_move.h"

#include <sys/stat.h>

enum { PAGE = 4096, LENGTH = 4 * PAGE };

static bool privileged;
static const char *const any = "file"; /* of the daemon's user, without a seal */

static const char *if_privileged(void) { return privileged ? any : "process"; }

static char *map(int fd, size_t length, int prot, int flags, off_t offset)
{
	char *p = mmap(NULL, length, prot, flags, fd, offset);

	MUST(p != MAP_FAILED);
	return p;
}

static char *shared(int fd) { return map(fd, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, 0); }

static int memfd(size_t length)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && !ftruncate(fd, (off_t)length));
	return fd;
}

static char path[64];

static int shm(void)
{
	static int n;

	snprintf(path, sizeof(path), "/dev/shm/goroce-test-%d-%d", getpid(), n++);
	unlink(path); /* of a process that had this PID, and was killed */
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	MUST(fd >= 0 && !ftruncate(fd, LENGTH));
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

/* Descriptors of the program's. */
static void descriptors(void)
{
	int fd = memfd(LENGTH), mode;
	char link[64];
	char *p = shared(fd), *other;
	struct ibv_mr *m = reg(any, "memfd", p + 100, LENGTH - 200);

	other = shared(fd);
	move(m, other + 100);
	p = shared(fd = memfd(LENGTH));
	MUST(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	reg("memfd", "memfd that cannot shrink", p, LENGTH);
	p = shared(fd = memfd(LENGTH));
	MUST(!fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	reg("process", "memfd that is sealed against writing", p, LENGTH);
	p = shared(fd = memfd(LENGTH));
	close(fd);
	reg(if_privileged(), "memfd that was closed", p, LENGTH);
	p = shared(fd = memfd(LENGTH));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	MUST((mode = open(link, O_RDONLY | O_CLOEXEC)) >= 0);
	close(fd);
	reg("process", "memfd that is open for reading", p, LENGTH);
	MUST(dup2(memfd(LENGTH), mode) == mode);
	reg(if_privileged(), "memfd whose descriptor is another's now", p, LENGTH);
}

/* Files with names. */
static void names(const char *dir)
{
	char file[256];
	char *p = shared(shm());

	reg(any, "file in /dev/shm", p, LENGTH);
	unlink(path);
	int fd = shm();
	p = shared(fd);
	close(fd);
	reg(any, "file in /dev/shm that was closed", p, LENGTH);
	unlink(path);
	reg(if_privileged(), "file in /dev/shm that was closed and removed", p, LENGTH);
	MUST(mkfifo(path, 0600) == 0); /* to open it would take for ever */
	reg(if_privileged(), "file in /dev/shm with another in its place", p, LENGTH);
	unlink(path);
	snprintf(file, sizeof(file), "%s/goroce-test", dir);
	MUST((fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0 && !ftruncate(fd, LENGTH));
	p = shared(fd);
	reg("process", "file on a disk", p, LENGTH);
	unlink(file);
}

/* Mappings that are, and are not, one piece of one file. */
static void mappings(void)
{
	int fd = memfd(8 * PAGE);
	char *p = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 3 * PAGE), *whole;

	whole = map(fd, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	struct ibv_mr *m = reg(any, "part of a file", p + 123, 4 * PAGE - 1000);
	move(m, whole + 3 * PAGE + 123);
	MUST(!madvise(p + PAGE, PAGE, MADV_DONTDUMP));
	m = reg(any, "three mappings in order", p + 5, 4 * PAGE - 5);
	move(m, whole + 3 * PAGE + 5);
	MUST(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + PAGE);
	reg("process", "pieces of a file out of order", p, 4 * PAGE);
	MUST(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd(8 * PAGE), 4 * PAGE) == p + PAGE);
	reg("process", "two files", p, 4 * PAGE);
	reg(any, "memory beside that of another file", p + 2 * PAGE, 2 * PAGE);
	MUST(mmap(p + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) ==
			p + 3 * PAGE);
	reg("process", "partly a file", p + 2 * PAGE, 2 * PAGE);
	reg("process", "private", map(fd, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0), LENGTH);
	reg(if_privileged(), "shared without a file",
			map(-1, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, 0), LENGTH);
	reg("process", "malloc", malloc(LENGTH), LENGTH);
	MUST(m = ibv_reg_mr(pd, map(fd, LENGTH, PROT_READ, MAP_SHARED, 0), LENGTH, IBV_ACCESS_REMOTE_READ));
	printf("%#x process to be read only\n", m->lkey);
	MUST(m = ibv_reg_mr(pd, whole, 8 * PAGE, ALL | IBV_ACCESS_ON_DEMAND));
	move(m, whole);
	printf("%#x process on demand\n", m->lkey);
	MUST(m = ibv_reg_mr_iova(pd, whole, 8 * PAGE, (uintptr_t)whole, ALL));
	move(m, whole);
	printf("%#x %s by ibv_reg_mr_iova\n", m->lkey, any);
}

/* What becomes of memory that is registered. */
static void changes(void)
{
	const int moves = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	char *other = malloc(LENGTH), *p = shared(memfd(LENGTH));
	struct ibv_mr *m = reg("process", "a file that was registered anew", p, LENGTH);

	IS(0, ibv_rereg_mr(m, moves, NULL, other, LENGTH, ALL));
	move(m, other);
	m = reg(any, "other memory that was registered anew", malloc(LENGTH), LENGTH);
	IS(0, ibv_rereg_mr(m, moves, NULL, p + 7, LENGTH - 7, ALL));
	IS(0, ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
	move(m, p + 7);

	/* As pinned pages do, the region stays what was registered. */
	int fd = memfd(LENGTH);
	p = shared(fd);
	m = reg(any, "memory that was mapped anew", p, LENGTH);
	MUST(mmap(p, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == p);
	move(m, shared(fd));
	for (int i = 0; i < LENGTH; i++)
		MUST(!p[i]);
}

/* Locks that the program has of a file stay: to close any descriptor of the file would give them up. */
static void locks(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = shm(), status;
	char *p = shared(fd);

	MUST(!fcntl(fd, F_SETLK, &lock));
	reg(any, "file that is locked", p, LENGTH);
	pid_t child = fork();
	MUST(child >= 0);
	if (!child) {
		MUST(!fcntl(fd, F_GETLK, &lock));
		_exit(lock.l_type == F_WRLCK ? 0 : 1);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	unlink(path);
	close(fd);
}

/* A child has a device of its own; what a peer writes there this process sees. */
static void forked(void)
{
	int fd = memfd(LENGTH), status;
	char *p = shared(fd);
	pid_t child;

	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		open_first();
		qp = loop(cq);
		move(ibv_reg_mr(pd, p, LENGTH, ALL), p);
		strcpy(p, "child");
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	MUST(!strcmp(p, "child"));
	reg(any, "memory that a child has used", p, LENGTH);
	child = fork();
	MUST(child >= 0);
	if (!child)
		pause();
	move(mr, buf); /* while a child shares all of it, copy on write or not */
	move(ibv_reg_mr(pd, p, LENGTH, ALL), p);
	kill(child, SIGKILL);
	MUST(waitpid(child, &status, 0) == child);
}

/* The client is dropped, and nobody else: what is registered is there no more. */
static void shrink(void)
{
	int fd = memfd(LENGTH);
	char *p = shared(fd);
	struct ibv_async_event event;
	struct ibv_mr *m = ibv_reg_mr(pd, p, LENGTH, ALL);

	MUST(m);
	move(m, p);
	MUST(!ftruncate(fd, 0));
	transfer(IBV_WR_RDMA_WRITE, mr, buf, (uintptr_t)p, m->rkey, 100);
	IS(0, ibv_get_async_event(ctx, &event));
	IS(IBV_EVENT_DEVICE_FATAL, (int)event.event_type);
}

/* What the daemon's limit of pinned memory does not allow it still reads and writes. */
static void refused(void)
{
	const size_t large = 1 << 20;

	reg(any, "file within the limit", shared(memfd(LENGTH)), LENGTH);
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
		descriptors();
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
