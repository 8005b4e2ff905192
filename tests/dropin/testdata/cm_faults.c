/*
 * cm_faults OPERATION ADDRESS: does a command of rdma_cm again and again (rdma/rdma_user_cm.h), and each time one of the
 * calls that libgoroce-sys.so makes for it fails: the first one, then the second one, and so on, until none is left. The
 * command then fails and can be written again, or it goes on without. Or the connection to the daemon has ended, which
 * the next command and GET_EVENT say.
 *
 * At the end the program says that it has closed what the operation has made, and waits for the end of its input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fails.h"
#include "must.h"

/* ours reports whether a caller is in the library. */
static bool ours(void *caller)
{
	Dl_info info;

	return left && dladdr(caller, &info) && strstr(info.dli_fname, "libgoroce-sys");
}

#define FAILS_HERE(name, err) (ours(__builtin_return_address(0)) && fails(name, err))
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

void *malloc(size_t n) { return FAILS_HERE("malloc", ENOMEM) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return FAILS_HERE("calloc", ENOMEM) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return FAILS_HERE("realloc", ENOMEM) ? NULL : __libc_realloc(p, n); }

ssize_t getrandom(void *to, size_t n, unsigned flags)
{
	return FAILS_HERE("getrandom", ENOSYS) ? -1 : NEXT(getrandom)(to, n, flags);
}

int bind(int fd, const struct sockaddr *at, socklen_t len)
{
	return FAILS_HERE("bind", ENOMEM) ? -1 : NEXT(bind)(fd, at, len);
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	return FAILS_HERE("connect", ECONNREFUSED) ? -1 : NEXT(connect)(fd, to, len);
}

int fcntl(int fd, int command, ...)
{
	va_list args;
	void *arg;

	va_start(args, command);
	arg = va_arg(args, void *);
	va_end(args);
	return FAILS_HERE("fcntl", EBADF) ? -1 : NEXT(fcntl)(fd, command, arg);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (ours(__builtin_return_address(0)))
		note(msg);
	return FAILS_HERE("sendmsg", ENOBUFS) ? -1 : NEXT(sendmsg)(fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = NEXT(recvmsg)(fd, msg, flags);

	return n >= 0 && FAILS_HERE("recvmsg", ENOMEM) ? lose(msg, n) : n;
}

/* What each operation finds: two channels, and on the first an ID that is bound. */
static struct sockaddr_in device = {.sin_family = AF_INET}, group = {.sin_family = AF_INET};
static int first, second;
static uint32_t placed;
static bool told; /* that the device of the ID is gone */

static int channel(void) { return open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK); }

/* command writes a command: 0, or errno. */
static int command(int fd, uint32_t op, const void *in, size_t len, size_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr head;
		char body[512];
	} c = {{op, (uint16_t)len, (uint16_t)out}, {0}};

	memcpy(c.body, in, len);
	return write(fd, &c, sizeof(c.head) + len) < 0 ? errno : 0;
}

#define COMMAND(fd, op, in, out) command(fd, RDMA_USER_CM_CMD_##op, &(in), sizeof(in), out)

static int create(int fd, uint32_t *id)
{
	struct rdma_ucm_create_id_resp resp = {0};
	struct rdma_ucm_create_id in = {.uid = 7, .response = (uintptr_t)&resp, .ps = RDMA_PS_UDP};
	int err = COMMAND(fd, CREATE_ID, in, sizeof(resp));

	*id = resp.id;
	return err;
}

static int destroy(int fd, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id in = {.response = (uintptr_t)&resp, .id = id};

	return COMMAND(fd, DESTROY_ID, in, sizeof(resp));
}

static int place(int fd, uint32_t id)
{
	struct rdma_ucm_bind in = {.id = id, .addr_size = sizeof(device)};

	memcpy(&in.addr, &device, sizeof(device));
	return COMMAND(fd, BIND, in, 0);
}

static int resolve(int fd, uint32_t id)
{
	struct rdma_ucm_resolve_ip in = {.id = id, .timeout_ms = 2000};

	memcpy(&in.dst_addr, &device, sizeof(device));
	return COMMAND(fd, RESOLVE_IP, in, 0);
}

static int resolve_route(int fd, uint32_t id)
{
	struct rdma_ucm_resolve_route in = {.id = id, .timeout_ms = 2000};

	return COMMAND(fd, RESOLVE_ROUTE, in, 0);
}

static int listen_on(int fd, uint32_t id)
{
	struct rdma_ucm_listen in = {.id = id, .backlog = 1};

	return COMMAND(fd, LISTEN, in, 0);
}

static int set_option(int fd, uint32_t id)
{
	uint8_t tos = 4;
	struct rdma_ucm_set_option in = {.id = id, .level = RDMA_OPTION_ID, .optname = RDMA_OPTION_ID_TOS,
		.optval = (uintptr_t)&tos, .optlen = sizeof(tos)};

	return COMMAND(fd, SET_OPTION, in, 0);
}

static int query(int fd, uint32_t id)
{
	struct rdma_ucm_query_route_resp resp;
	struct rdma_ucm_query in = {.response = (uintptr_t)&resp, .id = id};

	return COMMAND(fd, QUERY_ROUTE, in, sizeof(resp));
}

enum { ADDR_RESOLVED = 0, DEVICE_REMOVAL = 11, MULTICAST_JOIN = 12 };

static int event(int fd, struct rdma_ucm_event_resp *e)
{
	struct rdma_ucm_get_event in = {.response = (uintptr_t)e};
	int err = COMMAND(fd, GET_EVENT, in, sizeof(*e));

	if (!err && e->event == DEVICE_REMOVAL && e->id == placed) {
		IS(7, (int)e->uid);
		told = true;
	}
	return err;
}

static int join(int fd, uint32_t id, uint32_t *membership)
{
	struct rdma_ucm_create_id_resp resp = {0};
	struct rdma_ucm_join_mcast in = {.response = (uintptr_t)&resp, .uid = 9, .id = id,
		.addr_size = sizeof(group), .join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER};
	int err;

	memcpy(&in.addr, &group, sizeof(group));
	err = COMMAND(fd, JOIN_MCAST, in, sizeof(resp));
	*membership = resp.id;
	return err;
}

static int leave(int fd, uint32_t membership)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id in = {.response = (uintptr_t)&resp, .id = membership};

	return COMMAND(fd, LEAVE_MCAST, in, sizeof(resp));
}

static int migrate(int from, int to, uint32_t id)
{
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id in = {.response = (uintptr_t)&resp, .id = id, .fd = (uint32_t)from};

	return COMMAND(to, MIGRATE_ID, in, sizeof(resp));
}

static void set_up(void)
{
	MUST((first = channel()) >= 0 && (second = channel()) >= 0);
	IS(0, create(first, &placed));
	told = false;
	IS(0, place(first, placed));
}

/* works returns false if the connection has ended. Then the ID that is placed hears of it, and nothing works. */
static bool works(void)
{
	struct rdma_ucm_event_resp e;
	uint32_t id;
	int err = query(first, placed);

	if (!err) {
		IS(0, create(second, &id));
		IS(0, destroy(second, id));
		return true;
	}
	IS(EIO, err);
	while (!(err = event(first, &e)))
		IS(DEVICE_REMOVAL, (int)e.event);
	IS(EIO, err);
	MUST(told);
	IS(EIO, create(second, &id));
	return false;
}

/* end_id ends an ID of an operation. It is gone with the connection, too. */
static void end_id(int fd, uint32_t id)
{
	int err = destroy(fd, id);

	MUST(!err || err == EIO);
}

/* tried does a command with a fault, and if it fails without: what has failed can be done then, unless the connection
 * has ended. false: it has. */
#define TRIED(call)                                       \
	({                                                \
		int err_;                                 \
		arm();                                    \
		err_ = (call);                            \
		disarm();                                 \
		MUST(!err_ || failing);                   \
		if (err_)                                 \
			err_ = (call);                    \
		MUST(!err_ || err_ == EIO);               \
		!err_;                                    \
	})

static void open_channel(void)
{
	int fd;

	arm();
	fd = channel();
	disarm();
	MUST(fd >= 0 || failing);
	if (fd >= 0)
		close(fd);
}

/* begin_session is the open of a process that has no connection yet. */
static void begin_session(void)
{
	pid_t child = fork();
	int status = 1;

	MUST(child >= 0);
	if (!child) {
		open_channel();
		print_requests();
		_exit(failing ? 42 : 0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
	MUST(WEXITSTATUS(status) == 42 || !WEXITSTATUS(status));
	failing = WEXITSTATUS(status) ? "open" : NULL;
}

static void create_id(void)
{
	uint32_t id;

	if (TRIED(create(first, &id)))
		end_id(first, id);
}

/* What does something to an ID. */
#define OF_ID(name, before, call)                         \
	static void name(void)                            \
	{                                                 \
		uint32_t id;                              \
		IS(0, create(first, &id));                \
		IS(0, before);                            \
		(void)TRIED(call);                        \
		end_id(first, id);                        \
	}

OF_ID(bind_id, 0, place(first, id))
OF_ID(resolve_address, 0, resolve(first, id))
OF_ID(listen_id, place(first, id), listen_on(first, id))
OF_ID(set_an_option, 0, set_option(first, id))

static void await_event(uint32_t type)
{
	struct rdma_ucm_event_resp e;
	struct pollfd p = {.fd = first, .events = POLLIN};

	MUST(poll(&p, 1, 10000) == 1);
	IS(0, event(first, &e));
	IS((int)type, (int)e.event);
}

static void resolve_a_route(void)
{
	uint32_t id;

	IS(0, create(first, &id));
	IS(0, resolve(first, id));
	await_event(ADDR_RESOLVED);
	(void)TRIED(resolve_route(first, id));
	end_id(first, id);
}

static void get_event(void)
{
	struct rdma_ucm_event_resp e;
	struct pollfd p = {.fd = first, .events = POLLIN};
	uint32_t id;

	IS(0, create(first, &id));
	IS(0, resolve(first, id));
	MUST(poll(&p, 1, 10000) == 1);
	if (TRIED(event(first, &e)) && e.event != DEVICE_REMOVAL)
		IS(ADDR_RESOLVED, (int)e.event);
	end_id(first, id);
}

static void destroy_id(void)
{
	uint32_t id;

	IS(0, create(first, &id));
	(void)TRIED(destroy(first, id));
}

static void join_group(void)
{
	uint32_t id, membership;

	IS(0, create(first, &id));
	IS(0, place(first, id));
	if (TRIED(join(first, id, &membership))) {
		await_event(MULTICAST_JOIN);
		IS(0, leave(first, membership));
	}
	end_id(first, id);
}

static void leave_group(void)
{
	uint32_t id, membership;

	IS(0, create(first, &id));
	IS(0, place(first, id));
	IS(0, join(first, id, &membership));
	await_event(MULTICAST_JOIN);
	(void)TRIED(leave(first, membership));
	end_id(first, id);
}

static void migrate_id(void)
{
	uint32_t id;

	IS(0, create(first, &id));
	(void)TRIED(migrate(first, second, id));
	end_id(second, id);
}

#define OPERATION(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} operations[] = {
	OPERATION(open_channel), OPERATION(begin_session), OPERATION(create_id), OPERATION(bind_id),
	OPERATION(resolve_address), OPERATION(resolve_a_route), OPERATION(listen_id), OPERATION(set_an_option),
	OPERATION(get_event), OPERATION(destroy_id), OPERATION(join_group), OPERATION(leave_group), OPERATION(migrate_id),
};

static void close_all(void)
{
	close(first);
	close(second);
}

static void walk(void (*run)(void))
{
	bool hit = true, gone = false;

	for (fault = 1; hit; fault++) {
		if (gone)
			set_up();
		run();
		hit = failing;
		gone = !works();
		if (hit)
			printf("call %d, of %s: %s\n", fault, failing, gone ? "the connection has ended" : "goes on");
		if (gone)
			close_all();
	}
	MUST(!gone);
}

int main(int argc, char **argv)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(argc >= 2 && inet_pton(AF_INET, argv[1], &device.sin_addr) == 1);
	inet_pton(AF_INET, "239.1.1.9", &group.sin_addr);
	for (size_t i = 0; argc == 2 && i < sizeof(operations) / sizeof(*operations); i++)
		puts(operations[i].name);
	if (argc == 2)
		return 0;
	set_up();
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		if (!strcmp(argv[2], operations[i].name))
			walk(operations[i].run);
	}
	print_requests();
	puts("all is closed but two channels and an ID");
	while (!poll(&input, 1, 20)) /* with a request the daemon forgets channels whose sockets are closed */
		IS(0, query(first, placed));
	return 0;
}
