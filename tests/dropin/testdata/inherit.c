/*
 * What a child with fewer rights gets by the descriptors that it inherits: inherit exec|fork|clone.
 *
 * The program uses the device, and makes a child: by fork and exec, by fork alone, or by clone, of which no handler of
 * fork hears. As root it makes the child nobody. The child tries on each of its descriptors all by which it could reach
 * the memory of its parent. Nothing may come of it, and the parent goes on.
 */
#include "verbs_common.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "goroce.h"

enum { FIRST = 3, LAST = 1023, REFUSED_BY_STATE = 3 };

static bool breached;

static void breach(int fd, const char *what)
{
	printf("descriptor %d: %s\n", fd, what);
	breached = true;
}

/* is_eventfd reports whether a descriptor is of no kind that stat has a name for: the library has only eventfds of those. */
static bool is_eventfd(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !(st.st_mode & S_IFMT);
}

static bool is_packet_socket(int fd)
{
	int type;
	socklen_t len = sizeof(type);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_SEQPACKET;
}

/* request makes a request on a descriptor. It returns the status of the reply, or -1 if there is none. */
static int request(int fd, uint16_t op, const void *body, size_t len, void *reply, size_t size)
{
	static char in[GOROCE_MAX_MESSAGE];
	struct goroce_header head = {.op = op, .seq = 1000};
	struct iovec out[] = {{&head, sizeof(head)}, {(void *)body, len}};
	struct msghdr msg = {.msg_iov = out, .msg_iovlen = 2};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -1;
	MUST(poll(&p, 1, 60000) == 1);
	n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
	if (n < (ssize_t)sizeof(head))
		return -1;
	memcpy(&head, in, sizeof(head));
	if (!head.status && reply && (size_t)n == sizeof(head) + size)
		memcpy(reply, in + sizeof(head), size);
	return head.status;
}

/* speak tries to use a descriptor as a session with the daemon, to register memory of the parent. */
static void speak(int fd, uint64_t secret)
{
	struct goroce_hello hello = {GOROCE_MAGIC, GOROCE_VERSION, GOROCE_VERSION};
	struct goroce_open first = {{0}};
	struct goroce_object domain = {1};
	struct goroce_reg_mr reg = {.access = ALL, .kind = GOROCE_PROCESS, .addr = secret, .length = 8, .iova = secret};
	int status;

	if (!request(fd, GOROCE_HELLO, &hello, sizeof(hello), NULL, 0))
		breach(fd, "is greeted by the daemon");
	status = request(fd, GOROCE_OPEN, &first, sizeof(first), NULL, 0);
	if (status == 0 || status == REFUSED_BY_STATE)
		breach(fd, "has the device");
	if (!request(fd, GOROCE_ALLOC_PD, NULL, 0, &domain, sizeof(domain)))
		breach(fd, "gets a protection domain");
	reg.pd = domain.handle;
	if (!request(fd, GOROCE_REG_MR, &reg, sizeof(reg), NULL, 0))
		breach(fd, "registers memory of the parent");
}

/* reach tries what else a descriptor may give. Only handlers of fork can keep wake-ups of the daemon from a child. */
static void reach(int fd, uint64_t secret, bool wakes)
{
	uint64_t got = 1;

	if (pread(fd, &got, sizeof(got), (off_t)secret) == sizeof(got))
		breach(fd, "reads memory of the parent");
	if (fcntl(fd, F_GET_SEALS) >= 0)
		breach(fd, "is memory that is shared");
	if (!wakes && is_eventfd(fd) && write(fd, &got, sizeof(got)) >= 0)
		breach(fd, "wakes the daemon");
}

static int child(uint64_t secret, bool wakes)
{
	signal(SIGPIPE, SIG_IGN);
	for (int fd = FIRST; fd <= LAST; fd++) {
		if (is_packet_socket(fd))
			speak(fd, secret);
		reach(fd, secret, wakes);
	}
	fflush(stdout);
	return breached;
}

/*
 * look and drop_rights make system calls by themselves. To libc a child by clone has its parent's threads: it would wait
 * for locks that these held, and for a thread that was being started to take part in setgroups.
 */

/* look fails if the parent's rings or doorbells are mapped. */
static void look(void)
{
	static char maps[1 << 20];
	long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC), n, len = 0;

	MUST(fd >= 0);
	while ((n = syscall(SYS_read, fd, maps + len, sizeof(maps) - 1 - len)) > 0)
		len += n;
	MUST(n == 0 && len < (long)sizeof(maps) - 1);
	syscall(SYS_close, fd);
	if (strstr(maps, "memfd:goroce-"))
		breach(-1, "has rings or doorbells of the parent");
}

static void drop_rights(void)
{
	const int nobody = 65534;

	if (geteuid())
		return;
	MUST(!syscall(SYS_setgroups, 0, NULL) && !syscall(SYS_setresgid, nobody, nobody, nobody) &&
	     !syscall(SYS_setresuid, nobody, nobody, nobody));
}

static pid_t make_child(const char *how)
{
	return strcmp(how, "clone") ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

int main(int argc, char **argv)
{
	static uint64_t secret = 0x5EC4E7;
	struct ibv_comp_channel *channel;
	struct ibv_qp *qp;
	char at[32];
	pid_t pid;
	int status;

	MUST(argc >= 2);
	if (!strcmp(argv[1], "child"))
		return child(strtoull(argv[2], NULL, 16), false);
	open_first();
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC) >= 0);
	qp = loop(cq);
	snprintf(at, sizeof(at), "%jx", (uintmax_t)(uintptr_t)&secret);
	MUST((pid = make_child(argv[1])) >= 0);
	if (!pid) {
		if (strcmp(argv[1], "exec"))
			look();
		drop_rights();
		if (!strcmp(argv[1], "exec"))
			MUST(!execl(argv[0], argv[0], "child", at, NULL));
		_exit(child((uintptr_t)&secret, !strcmp(argv[1], "clone")));
	}
	MUST(waitpid(pid, &status, 0) == pid);
	write_once(qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	MUST(ibv_alloc_pd(ctx));
	return status != 0;
}
