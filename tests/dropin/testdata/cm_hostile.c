/*
 * Writes wrong commands to channels of rdma_cm, by rdma/rdma_user_cm.h alone. The first argument names the part, the
 * second the address of the device. What must come is what the kernel's ucma.c says.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum { PORT = 7471, NOWHERE = 8, NO_ID = 12345678, COMMANDS = RDMA_USER_CM_CMD_JOIN_MCAST + 1,
	FAMILY_IB = 27 };

static bool starved; /* no memory is allocated */
extern void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
	if (!starved)
		return __libc_malloc(size);
	errno = ENOMEM;
	return NULL;
}

static struct sockaddr_in device = { .sin_family = AF_INET };
static uint64_t answer[512];

/* What a command needs: the least and the whole length, room for the answer, and where the ID and the answer's
 * address are; -1: nowhere. empty is what a command of zeros returns. */
struct shape {
	int least, whole, out, id, response, empty;
};

#define AT(type, field) ((int)offsetof(struct type, field))
#define LEN(type) ((int)sizeof(struct type))
#define SHAPE(type, out, response, empty) { LEN(type), LEN(type), out, AT(type, id), response, empty }
#define PART(type, end, out, response, empty) { end, LEN(type), out, AT(type, id), response, empty }

static const struct shape shapes[COMMANDS] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = { LEN(rdma_ucm_create_id), LEN(rdma_ucm_create_id), 4, -1, 8, EINVAL },
	[RDMA_USER_CM_CMD_DESTROY_ID] = SHAPE(rdma_ucm_destroy_id, 4, 0, ENOENT),
	[RDMA_USER_CM_CMD_BIND_IP] = PART(rdma_ucm_bind_ip, AT(rdma_ucm_bind_ip, id) + 4, 0, -1, EINVAL),
	[RDMA_USER_CM_CMD_RESOLVE_IP] = SHAPE(rdma_ucm_resolve_ip, 0, -1, EINVAL),
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = SHAPE(rdma_ucm_resolve_route, 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = PART(rdma_ucm_query, AT(rdma_ucm_query, option),
			AT(rdma_ucm_query_route_resp, ibdev_index), 0, ENOENT),
	[RDMA_USER_CM_CMD_CONNECT] = PART(rdma_ucm_connect, AT(rdma_ucm_connect, ece), 0, -1, EINVAL),
	[RDMA_USER_CM_CMD_LISTEN] = SHAPE(rdma_ucm_listen, 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_ACCEPT] = PART(rdma_ucm_accept, AT(rdma_ucm_accept, ece), 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_REJECT] = SHAPE(rdma_ucm_reject, 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_DISCONNECT] = SHAPE(rdma_ucm_disconnect, 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = SHAPE(rdma_ucm_init_qp_attr, LEN(ib_uverbs_qp_attr), 0, ENOENT),
	[RDMA_USER_CM_CMD_GET_EVENT] = { LEN(rdma_ucm_get_event), LEN(rdma_ucm_get_event),
			AT(rdma_ucm_event_resp, reserved), -1, 0, EFAULT },
	[RDMA_USER_CM_CMD_SET_OPTION] = SHAPE(rdma_ucm_set_option, 0, 0, EINVAL),
	[RDMA_USER_CM_CMD_NOTIFY] = SHAPE(rdma_ucm_notify, 0, -1, ENOENT),
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = PART(rdma_ucm_join_ip_mcast, AT(rdma_ucm_join_ip_mcast, id) + 4, 4, 0, EINVAL),
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = SHAPE(rdma_ucm_destroy_id, 4, 0, ENOENT),
	[RDMA_USER_CM_CMD_MIGRATE_ID] = SHAPE(rdma_ucm_migrate_id, 4, 0, EINVAL),
	[RDMA_USER_CM_CMD_QUERY] = SHAPE(rdma_ucm_query, AT(rdma_ucm_query_path_resp, path_data), 0, ENOENT),
	[RDMA_USER_CM_CMD_BIND] = SHAPE(rdma_ucm_bind, 0, -1, EINVAL),
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = SHAPE(rdma_ucm_resolve_addr, 0, -1, EINVAL),
	[RDMA_USER_CM_CMD_JOIN_MCAST] = SHAPE(rdma_ucm_join_mcast, 4, 0, EINVAL),
};

static int channel(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	MUST(fd >= 0);
	return fd;
}

/* command writes a command: 0, or errno. */
static int command(int fd, uint32_t op, const void *in, size_t len, size_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr head;
		char body[1024];
	} c = { { op, (uint16_t)len, (uint16_t)out }, { 0 } };
	ssize_t n;

	memcpy(c.body, in, len);
	n = write(fd, &c, sizeof(c.head) + len);
	if (n < 0)
		return errno;
	MUST((size_t)n == sizeof(c.head) + len);
	return 0;
}

#define COMMAND(fd, op, in, out) command(fd, op, &(in), sizeof(in), out)

static int create(int fd, uint16_t space, uint32_t *id)
{
	struct rdma_ucm_create_id_resp resp = { 0 };
	struct rdma_ucm_create_id in = { .uid = 1, .response = (uintptr_t)&resp, .ps = space };
	int err = COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, in, sizeof(resp));

	*id = resp.id;
	return err;
}

/* end ends an ID by DESTROY_ID, or a membership by LEAVE_MCAST. */
static int end(int fd, uint32_t op, uint32_t id)
{
	struct rdma_ucm_destroy_id in = { .response = (uintptr_t)answer, .id = id };

	return COMMAND(fd, op, in, sizeof(struct rdma_ucm_destroy_id_resp));
}

static int destroy(int fd, uint32_t id)
{
	return end(fd, RDMA_USER_CM_CMD_DESTROY_ID, id);
}

static int bind_port(int fd, uint32_t id, uint16_t port)
{
	struct rdma_ucm_bind in = { .id = id, .addr_size = sizeof(device) };
	struct sockaddr_in at = device;

	at.sin_port = htons(port);
	memcpy(&in.addr, &at, sizeof(at));
	return COMMAND(fd, RDMA_USER_CM_CMD_BIND, in, 0);
}

static int resolve(int fd, uint32_t id)
{
	struct rdma_ucm_resolve_ip in = { .id = id, .timeout_ms = 2000 };

	memcpy(&in.dst_addr, &device, sizeof(device));
	return COMMAND(fd, RDMA_USER_CM_CMD_RESOLVE_IP, in, 0);
}

static int get_event(int fd, void *to)
{
	struct rdma_ucm_get_event in = { .response = (uintptr_t)to };

	return COMMAND(fd, RDMA_USER_CM_CMD_GET_EVENT, in, sizeof(struct rdma_ucm_event_resp));
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* fill writes a command that nothing is wrong with but, maybe, its ID. */
static void fill(uint32_t op, char *body, uint32_t id, int from)
{
	union {
		char *body;
		struct rdma_ucm_bind_ip *bind_ip;
		struct rdma_ucm_bind *bind;
		struct rdma_ucm_resolve_ip *resolve_ip;
		struct rdma_ucm_resolve_addr *resolve;
		struct rdma_ucm_connect *connect;
		struct rdma_ucm_accept *accept;
		struct rdma_ucm_set_option *option;
		struct rdma_ucm_join_ip_mcast *join_ip;
		struct rdma_ucm_join_mcast *join;
		struct rdma_ucm_migrate_id *migrate;
	} u = { body };
	const struct shape *s = &shapes[op];

	memset(body, 0, (size_t)s->whole);
	if (s->id >= 0)
		memcpy(body + s->id, &id, sizeof(id));
	if (s->response >= 0)
		memcpy(body + s->response, &(uint64_t){ (uintptr_t)answer }, 8);
	switch (op) {
	case RDMA_USER_CM_CMD_BIND_IP:
		memcpy(&u.bind_ip->addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_BIND:
		u.bind->addr_size = sizeof(device);
		memcpy(&u.bind->addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		memcpy(&u.resolve_ip->dst_addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
		u.resolve->dst_size = sizeof(device);
		memcpy(&u.resolve->dst_addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_CONNECT:
		u.connect->conn_param.valid = 1;
		break;
	case RDMA_USER_CM_CMD_ACCEPT:
		u.accept->conn_param.valid = 1;
		break;
	case RDMA_USER_CM_CMD_SET_OPTION:
		u.option->optlen = 1;
		break;
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		memcpy(&u.join_ip->addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_JOIN_MCAST:
		u.join->addr_size = sizeof(device);
		memcpy(&u.join->addr, &device, sizeof(device));
		break;
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		u.migrate->fd = (uint32_t)from;
		break;
	}
}

/* lengths: commands of every length, with room for every length of answer, and messages that end early. */
static void lengths(void)
{
	static const char zeros[1024];
	struct rdma_ucm_cmd_hdr head = { .cmd = RDMA_USER_CM_CMD_DISCONNECT, .in = 4 };
	void *volatile nowhere = (void *)NOWHERE; /* the compiler would warn */
	int fd = channel();

	for (uint32_t op = 0; op < COMMANDS; op++) {
		const struct shape *s = &shapes[op];

		if (!s->whole)
			continue;
		for (int n = 0; n <= s->whole + 1; n++)
			IS(n < s->least ? EINVAL : s->empty, command(fd, op, zeros, (size_t)n, (size_t)s->out));
		for (int n = 0; n < s->out; n++)
			IS(ENOSPC, command(fd, op, zeros, (size_t)s->whole, (size_t)n));
	}
	for (size_t n = 0; n < sizeof(head) + 4; n++) {
		char *exact = malloc(n ? n : 1);

		MUST(exact);
		memcpy(exact, &head, n < sizeof(head) ? n : sizeof(head));
		MUST(write(fd, exact, n) == -1 && errno == EINVAL);
		free(exact);
	}
	MUST(write(fd, nowhere, 64) == -1 && errno == EFAULT);
	MUST(close(fd) == 0);
}

/* half_mapped: a command whose body is in memory that is not there. */
static void half_mapped(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rdma_ucm_cmd_hdr head = { .cmd = RDMA_USER_CM_CMD_DISCONNECT, .in = 4 };
	int fd = channel();

	MUST(two != MAP_FAILED && munmap(two + page, (size_t)page) == 0);
	memcpy(two + page - sizeof(head), &head, sizeof(head));
	MUST(write(fd, two + page - sizeof(head), sizeof(head) + 4) == -1 && errno == EFAULT);
	MUST(close(fd) == 0);
}

static void unknown(void)
{
	static const char zeros[512];
	int fd = channel();

	IS(ENOSYS, command(fd, RDMA_USER_CM_CMD_GET_OPTION, zeros, sizeof(zeros), 512));
	for (uint32_t op = COMMANDS; op < 300; op++)
		IS(EINVAL, command(fd, op, zeros, sizeof(zeros), 512));
	IS(EINVAL, command(fd, UINT32_MAX, zeros, sizeof(zeros), 512));
	MUST(close(fd) == 0);
}

/* ids_of tries every command on an ID. */
static void ids_of(int fd, uint32_t id, int from, int want)
{
	char body[512] __attribute__((aligned(8)));

	for (uint32_t op = 0; op < COMMANDS; op++) {
		if (shapes[op].id < 0 || !shapes[op].whole)
			continue;
		fill(op, body, id, from);
		IS(op == RDMA_USER_CM_CMD_LEAVE_MCAST ? ENOENT : want,
		   command(fd, op, body, (size_t)shapes[op].whole, 512));
	}
}

/* scope: IDs of another channel, and such as are not there. */
static void scope(void)
{
	int a = channel(), b = channel();
	uint32_t id;

	IS(0, create(a, RDMA_PS_TCP, &id));
	ids_of(b, id, b, EINVAL);
	ids_of(a, NO_ID, a, ENOENT);
	ids_of(a, 0, a, ENOENT);
	IS(0, destroy(a, id));
	ids_of(a, id, a, ENOENT);
	MUST(close(a) == 0 && close(b) == 0);
}

static void membership(void)
{
	struct rdma_ucm_create_id_resp m = { 0 };
	struct rdma_ucm_join_mcast in = { .response = (uintptr_t)&m, .uid = 2, .addr_size = sizeof(device) };
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xEF010203) };
	int a = channel(), b = channel();

	IS(0, create(a, RDMA_PS_UDP, &in.id));
	IS(0, bind_port(a, in.id, 0));
	memcpy(&in.addr, &group, sizeof(group));
	in.response = NOWHERE;
	IS(EFAULT, COMMAND(a, RDMA_USER_CM_CMD_JOIN_MCAST, in, sizeof(m)));
	in.response = (uintptr_t)&m;
	IS(0, COMMAND(a, RDMA_USER_CM_CMD_JOIN_MCAST, in, sizeof(m)));
	IS(ENOENT, destroy(a, m.id));
	IS(ENOENT, end(a, RDMA_USER_CM_CMD_LEAVE_MCAST, in.id));
	IS(EINVAL, end(b, RDMA_USER_CM_CMD_LEAVE_MCAST, m.id));
	IS(0, end(a, RDMA_USER_CM_CMD_LEAVE_MCAST, m.id));
	IS(ENOENT, end(a, RDMA_USER_CM_CMD_LEAVE_MCAST, m.id));
	IS(0, destroy(a, in.id));
	MUST(close(a) == 0 && close(b) == 0);
}

static void families(void)
{
	struct rdma_ucm_bind in = { .addr_size = sizeof(device) };
	struct rdma_ucm_bind_ip ip = { 0 };
	int fd = channel();

	IS(0, create(fd, RDMA_PS_TCP, &in.id));
	ip.id = in.id;
	for (uint16_t family = 0; family < 64; family++) {
		if (family == AF_INET || family == AF_INET6 || family == FAMILY_IB)
			continue;
		memcpy(&in.addr, &family, sizeof(family));
		memcpy(&ip.addr, &family, sizeof(family));
		IS(EINVAL, COMMAND(fd, RDMA_USER_CM_CMD_BIND, in, 0));
		IS(EINVAL, COMMAND(fd, RDMA_USER_CM_CMD_BIND_IP, ip, 0));
	}
	memcpy(&in.addr, &device, sizeof(device));
	for (uint16_t size = 0; size < 200; size++) {
		in.addr_size = size;
		if (size != sizeof(device))
			IS(EINVAL, COMMAND(fd, RDMA_USER_CM_CMD_BIND, in, 0));
	}
	in.addr_size = sizeof(device);
	IS(0, COMMAND(fd, RDMA_USER_CM_CMD_BIND, in, 0));
	MUST(close(fd) == 0);
}

/* unwritable: an answer that cannot be written makes nothing, and takes nothing. */
static void unwritable(void)
{
	struct rdma_ucm_create_id in = { .uid = 1, .response = NOWHERE, .ps = RDMA_PS_TCP };
	struct rdma_ucm_event_resp e;
	int fd = channel();
	uint32_t id;

	for (int i = 0; i < 20000; i++) /* more than a user may have */
		IS(EFAULT, COMMAND(fd, RDMA_USER_CM_CMD_CREATE_ID, in, 4));
	IS(0, create(fd, RDMA_PS_TCP, &id));
	IS(0, resolve(fd, id));
	MUST(readable(fd, 60000));
	IS(EFAULT, get_event(fd, (void *)NOWHERE));
	MUST(readable(fd, 0));
	IS(0, get_event(fd, &e));
	MUST(e.id == id && e.uid == 1 && e.event == 0 && !readable(fd, 0));
	IS(EAGAIN, get_event(fd, &e));
	MUST(close(fd) == 0);
}

/* no_memory: an ID that the library cannot keep is none. */
static void no_memory(void)
{
	int fd = channel(), err;
	uint32_t id;

	starved = true;
	err = create(fd, RDMA_PS_TCP, &id);
	starved = false;
	IS(ENOMEM, err);
	MUST(id);
	IS(ENOENT, destroy(fd, id));
	MUST(close(fd) == 0);
}

/* many: 10,000 IDs or as many as there may be, each with an event that nobody reads, again and again. */
static void many(void)
{
	enum { MANY = 10000 };
	static uint32_t ids[MANY];
	int first = 0;

	for (int round = 0; round < 3; round++) {
		int fd = channel(), n = 0, err = 0;

		while (n < MANY && !(err = create(fd, RDMA_PS_TCP, &ids[n])))
			IS(0, resolve(fd, ids[n++]));
		IS(n < MANY ? ENOMEM : 0, err);
		first = first ? first : n;
		IS(first, n); /* none of the round before is left */
		MUST(readable(fd, 60000));
		for (int i = 0; i < n; i++)
			IS(0, destroy(fd, ids[i]));
		MUST(!readable(fd, 0));
		MUST(close(fd) == 0);
	}
	printf("%d IDs\n", first);
}

/* foreign: what a process may do with a channel of another one: nothing. */
static void foreign(int fd, uint32_t id)
{
	int own;

	IS(EACCES, destroy(fd, id));
	IS(EACCES, get_event(fd, answer));
	own = channel();
	IS(EACCES, destroy(fd, id)); /* it has a connection of its own now */
	for (uint32_t i = 0; i < 100; i++)
		MUST(destroy(own, i) == ENOENT && end(own, RDMA_USER_CM_CMD_LEAVE_MCAST, i) == ENOENT);
	MUST(close(own) == 0);
}

/* taken reports whether somebody has the port. */
static bool taken(int fd)
{
	uint32_t id;
	int err;

	IS(0, create(fd, RDMA_PS_TCP, &id));
	err = bind_port(fd, id, PORT);
	MUST(!err || err == EADDRINUSE);
	IS(0, destroy(fd, id));
	return err != 0;
}

static void child_ok(pid_t child)
{
	int status;

	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* held has the child keep a channel that the parent closes: it ends with the child's descriptor. */
static void held(int fd, int other, int tell, pid_t child)
{
	char byte;

	MUST(read(tell, &byte, 1) == 1); /* the child has tried */
	MUST(close(fd) == 0 && taken(other));
	MUST(write(tell, "", 1) == 1);
	child_ok(child);
	for (int i = 0; taken(other); i++)
		MUST(i < 6000 && poll(NULL, 0, 10) == 0);
	MUST(close(other) == 0);
}

static void keep(int fd, uint32_t id, int tell)
{
	char byte;

	foreign(fd, id);
	MUST(write(tell, "", 1) == 1 && read(tell, &byte, 1) == 1);
	_exit(0);
}

static void forked(void)
{
	int fd = channel(), other = channel(), pair[2];
	uint32_t id;
	pid_t child;

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	IS(0, create(fd, RDMA_PS_TCP, &id));
	IS(0, bind_port(fd, id, PORT));
	MUST((child = fork()) >= 0);
	if (!child) {
		close(other);
		keep(fd, id, pair[1]);
	}
	held(fd, other, pair[0], child);
}

union rights {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static void pass(int over, int fd)
{
	char byte = 0;
	struct iovec one = { &byte, 1 };
	union rights r = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof(r) };

	memcpy(CMSG_DATA(&r.head), &fd, sizeof(fd));
	MUST(sendmsg(over, &msg, 0) == 1);
}

/* receive takes a descriptor by recvmsg, or by recvmmsg. */
static int receive(int over, bool several)
{
	char byte;
	struct iovec one = { &byte, 1 };
	union rights r;
	struct mmsghdr m = { { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof(r) }, 0 };
	int fd;

	MUST((several ? recvmmsg(over, &m, 1, 0, NULL) : recvmsg(over, &m.msg_hdr, 0)) == 1);
	MUST(m.msg_hdr.msg_controllen && r.head.cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&r.head), sizeof(fd));
	return fd;
}

static void pass_to_child(bool several)
{
	int fd, other, pair[2];
	uint32_t id;
	pid_t child;

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	MUST((child = fork()) >= 0);
	if (!child) {
		fd = receive(pair[1], several);
		keep(fd, 1, pair[1]);
	}
	fd = channel();
	other = channel();
	IS(0, create(fd, RDMA_PS_TCP, &id));
	IS(0, bind_port(fd, id, PORT));
	pass(pair[0], fd);
	held(fd, other, pair[0], child);
}

/* passed: as forked, with a process that had no channel before. */
static void passed(void) { pass_to_child(false); }

static void passed_among(void) { pass_to_child(true); }

static uint64_t seed;

/* draw draws a number below n (splitmix64). */
static uint32_t draw(uint32_t n)
{
	uint64_t z = seed += 0x9E3779B97F4A7C15;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return (uint32_t)((z ^ z >> 31) % n);
}

enum { CHANNELS = 4, KNOWN = 64 };

static uint32_t known[KNOWN];

/* spoil draws a command, some of it wrong. */
static int spoil(uint32_t op, const int fds[CHANNELS], char *body)
{
	const struct shape *s = &shapes[op];
	uint64_t to = draw(20) ? (uintptr_t)answer : NOWHERE;

	fill(op, body, draw(8) ? known[draw(KNOWN)] : draw(1000), fds[draw(CHANNELS)]);
	if (op == RDMA_USER_CM_CMD_CREATE_ID)
		memcpy(body + AT(rdma_ucm_create_id, ps), &(uint16_t){ draw(4) ? RDMA_PS_TCP : RDMA_PS_UDP }, 2);
	for (uint32_t n = draw(3) ? 0 : draw(8); n > 0; n--)
		body[draw((uint32_t)s->whole)] = (char)draw(256);
	if (s->response >= 0)
		memcpy(body + s->response, &to, sizeof(to));
	return draw(20) ? s->whole : (int)draw((uint32_t)s->whole);
}

/* alike writes to a socket whose name has the length and the beginning of a channel's. */
static void alike(void)
{
	static const char text[] = "goroce-cm/0123456789abcdef/0123456g/0123456789abcdef";
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + sizeof(text) - 1;
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	char got[sizeof(text)];

	channel();
	memcpy(at.sun_path + 1, text, sizeof(text) - 1);
	MUST(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && connect(fd, (struct sockaddr *)&at, len) == 0);
	MUST(write(fd, text, sizeof(text)) == sizeof(text));
	MUST(read(fd, got, sizeof(got)) == sizeof(got) && memcmp(got, text, sizeof(got)) == 0);
}

/* fuzz writes commands at random. None may break the connection to the daemon, or wait. */
static void fuzz(unsigned count)
{
	char body[512] __attribute__((aligned(8)));
	int fds[CHANNELS], ok = 0;

	for (int i = 0; i < CHANNELS; i++)
		fds[i] = channel();
	for (unsigned i = 0; i < count; i++) {
		uint32_t op = draw(COMMANDS), at = draw(CHANNELS);
		int len, err;

		if (!shapes[op].whole)
			continue;
		if (!draw(500)) {
			MUST(close(fds[at]) == 0);
			fds[at] = channel();
		}
		len = spoil(op, fds, body);
		err = command(fds[at], op, body, (size_t)len, draw(20) ? 512 : draw(512));
		MUST(err != EIO && err != EPROTO && err != EPIPE && err != ENOTCONN && err != EBADF);
		ok += !err;
		if (!err && (op == RDMA_USER_CM_CMD_CREATE_ID || op == RDMA_USER_CM_CMD_JOIN_MCAST))
			known[draw(KNOWN)] = (uint32_t)answer[0];
	}
	printf("%d of %u commands succeeded\n", ok, count);
}

static const struct {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "lengths", lengths }, { "half_mapped", half_mapped }, { "unknown", unknown }, { "scope", scope },
	{ "membership", membership }, { "families", families }, { "unwritable", unwritable },
	{ "no_memory", no_memory }, { "many", many }, { "forked", forked }, { "passed", passed },
	{ "passed_among", passed_among }, { "alike", alike },
};

int main(int argc, char **argv)
{
	MUST(argc >= 3 && inet_pton(AF_INET, argv[2], &device.sin_addr) == 1);
	if (argc == 5 && strcmp(argv[1], "fuzz") == 0) {
		seed = strtoull(argv[3], NULL, 10);
		fuzz((unsigned)strtoul(argv[4], NULL, 10));
		return 0;
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	}
	return 2;
}
