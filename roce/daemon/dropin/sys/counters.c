/*
 * Counters are read when their file is opened: this asks the daemon, as a client of
 * its own, by the protocol of docs/abi.md. The file in the tree is there to be
 * listed; what it has is of the time when the daemon wrote it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "sys.h"

#define NAME_LEN 64
#define MAX_MESSAGE 16384

enum { OP_HELLO = 1, OP_OPEN = 2, OP_COUNTERS = 47 };

struct header {
	uint16_t op, status;
	uint32_t seq;
};

struct hello {
	uint32_t magic;
	uint16_t min_version, max_version;
};

struct port {
	uint32_t port, index;
};

struct counter {
	char name[NAME_LEN];
	uint64_t value;
	uint32_t hw, reserved;
};

/* A counter's file: SOCKET.d/sys/class/infiniband/DEVICE/ports/PORT/counters/NAME. */
struct place {
	struct sockaddr_un socket;
	char device[NAME_LEN], name[NAME_LEN];
	unsigned int port;
	bool hw;
};

/* parse - reports whether a path in the tree is a counter's, and which. */
static bool parse(const char *path, struct place *p)
{
	static const char root[] = ".d/sys/class/infiniband/";
	const char *tail = NULL, *at = path;
	char dir[16];
	int end = 0;
	size_t n;

	while ((at = strstr(at, root))) /* the last, as a socket may have any name */
		tail = at++;
	if (!tail)
		return false;
	memset(p, 0, sizeof(*p));
	if (sscanf(tail + sizeof(root) - 1, "%63[^/]/ports/%u/%15[^/]/%63[^/]%n", p->device, &p->port, dir, p->name,
		   &end) != 4 ||
	    tail[sizeof(root) - 1 + end] != '\0')
		return false;
	p->hw = strcmp(dir, "hw_counters") == 0;
	if (!p->hw && strcmp(dir, "counters") != 0)
		return false;
	n = tail - path;
	if (n >= sizeof(p->socket.sun_path))
		return false;
	p->socket.sun_family = AF_UNIX;
	memcpy(p->socket.sun_path, path, n);
	return true;
}

/* A reply and its length. Descriptors that come with it are closed by the kernel. */
struct reply {
	size_t len;
	struct header header;
	unsigned char body[MAX_MESSAGE - sizeof(struct header)];
};

/* ask - makes a request, and takes the reply. */
static int ask(int fd, uint16_t op, const void *body, size_t len, struct reply *r)
{
	struct header h = { .op = op, .seq = op };
	struct iovec out[] = { { &h, sizeof(h) }, { (void *)body, len } };
	struct iovec in = { &r->header, MAX_MESSAGE };
	struct msghdr to = { .msg_iov = out, .msg_iovlen = 2 };
	struct msghdr from = { .msg_iov = &in, .msg_iovlen = 1 };
	ssize_t n;

	do
		n = sendmsg(fd, &to, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	do
		n = recvmsg(fd, &from, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	if ((size_t)n < sizeof(h) || r->header.status != 0) {
		errno = EIO;
		return -1;
	}
	r->len = n - sizeof(h);
	return 0;
}

/* talk - asks for the counters of a port. */
static int talk(int fd, const struct place *p, struct reply *r)
{
	struct hello hello = { 0x6F726F67, 2, 2 };
	struct port port = { p->port, 0 };
	struct timeval limit = { 5, 0 };

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)&p->socket, sizeof(p->socket)) < 0)
		return -1;
	if (ask(fd, OP_HELLO, &hello, sizeof(hello), r) < 0 ||
	    ask(fd, OP_OPEN, p->device, sizeof(p->device), r) < 0)
		return -1;
	return ask(fd, OP_COUNTERS, &port, sizeof(port), r);
}

/* find - finds a counter in a reply. */
static int find(const struct place *p, const struct reply *r, uint64_t *value)
{
	struct counter c;

	for (size_t at = 0; at + sizeof(c) <= r->len; at += sizeof(c)) {
		memcpy(&c, r->body + at, sizeof(c));
		if (!!c.hw == p->hw && strncmp(c.name, p->name, sizeof(c.name)) == 0) {
			*value = c.value;
			return 0;
		}
	}
	errno = ENOENT;
	return -1;
}

/* text_file - makes a file that has a number, to be read. */
static int text_file(const char *name, uint64_t value, int flags)
{
	int fd = memfd_create(name, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);

	if (fd < 0)
		return -1;
	if (pwrite(fd, text, n, 0) != n) {
		close(fd);
		errno = EIO;
		return -1;
	}
	return fd;
}

static int read_counter(const struct place *p, int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct reply r;
	uint64_t value;
	int ret, saved;

	if (fd < 0)
		return -1;
	ret = talk(fd, p, &r);
	saved = errno;
	close(fd);
	errno = saved;
	if (ret < 0 || find(p, &r, &value) < 0)
		return -1;
	return text_file(p->name, value, flags);
}

bool sys_counter(const char *path, int flags, int *fd)
{
	struct place p;

	if ((flags & (O_DIRECTORY | O_PATH)) || !parse(path, &p) || strcmp(p.name, "lifespan") == 0)
		return false;
	*fd = -1;
	if ((flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES; /* as sysfs has it for all but root */
		return true;
	}
	*fd = read_counter(&p, flags);
	return true;
}
