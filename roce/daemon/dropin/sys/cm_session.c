/*
 * The process's control connection for connections by address. It is made when the first channel is opened, and stays
 * until the process ends. A child after fork makes one of its own.
 *
 * If the daemon ends, the next channel that is opened makes a connection to the next daemon. The former one is kept,
 * in a list behind it: its channels still tell their programs of the end. So connections are only ever put in front,
 * and never freed, and whoever looks for one by its number needs no lock. libibverbs has connections of its own; both
 * libraries are one process to the daemon.
 */
#include "../client/client.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "cm.h"

struct cm_session {
	struct control control;
	struct goroce_device_reply *devices; /* of the daemon; the first is the connection's */
	uint32_t num_devices;
	uint64_t number; /* random */
	struct cm_ids ids;
	struct cm_session *before; /* whose daemon has ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken to make a connection; forks wait for it */
static _Atomic(struct cm_session *) current;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* in_child leaves the connections to the parent. Another thread of the parent may have been using one: it is not
 * freed. Their descriptors are closed already (fds.c). Channels of the parent belong to none of the child's
 * connections. */
static void in_child(void)
{
	atomic_store(&current, NULL);
	pthread_mutex_unlock(&lock);
}

static void watch_fork(void)
{
	fds_watch(); /* before, as the connection is made with the lock held */
	pthread_atfork(before_fork, after_fork, in_child);
}

/* open_device opens the daemon's first device. The doorbells are not needed, nor is the socket of asynchronous
 * events, which is closed at once: there are no objects that could have any. */
static int open_device(struct cm_session *s, const char name[64])
{
	struct goroce_open_reply r;
	struct call call = {
		.op = GOROCE_OPEN, .body = name, .len = 64, .give = -1, .reply = &r, .size = sizeof(r), .want_fds = -1,
	};
	int err = control_call(&s->control, &call);

	if (err)
		return err;
	close_all(call.fds, call.want_fds);
	s->devices[0] = r.device;
	return 0;
}

/* take_devices opens the first device, and looks at the others, on which IDs may be, too. */
static int take_devices(struct cm_session *s, const struct goroce_hello_reply *hello)
{
	const size_t most = sizeof(hello->names) / sizeof(*hello->names);
	int err;

	s->num_devices = hello->devices < most ? hello->devices : most;
	if (!s->num_devices)
		return ENODEV;
	s->devices = calloc(s->num_devices, sizeof(*s->devices));
	err = s->devices ? open_device(s, hello->names[0]) : ENOMEM;
	for (uint32_t i = 1; i < s->num_devices && !err; i++)
		err = cm_ask(s, GOROCE_QUERY_DEVICE, hello->names[i], sizeof(hello->names[i]), &s->devices[i],
			     sizeof(s->devices[i]));
	return err;
}

/* begin connects to the daemon that programs find. After an error there is no connection, but devices may be
 * allocated. */
static int begin(struct cm_session *s)
{
	struct goroce_hello_reply hello;
	char path[PATH_LEN];
	int err;

	if (getrandom(&s->number, sizeof(s->number), 0) != sizeof(s->number))
		return EIO;
	err = daemon_dial(&s->control, path, &hello);
	if (err)
		return err;
	err = take_devices(s, &hello);
	if (err)
		control_close(&s->control);
	return err;
}

static struct cm_session *new_session(int *err)
{
	struct cm_session *s = calloc(1, sizeof(*s));

	*err = s ? begin(s) : ENOMEM;
	if (*err) {
		if (s)
			free(s->devices);
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->ids.lock, NULL);
	return s;
}

/*
 * cm_session returns the connection, and makes it if there is none, or its daemon has ended. Channels of the former one
 * may be in use, so it stays in memory. After an error the former one is still the current one. A fork waits while a
 * connection is made, so that its child has no part of one that is half made.
 */
struct cm_session *cm_session(int *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct cm_session *s;
	int cancel;

	*err = 0;
	pthread_once(&once, watch_fork);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* connect must not end a thread that holds the lock */
	pthread_mutex_lock(&lock);
	s = atomic_load(&current);
	if (!s || atomic_load(&s->control.gone)) {
		struct cm_session *before = s;
		s = new_session(err);
		if (s) {
			s->before = before;
			atomic_store(&current, s);
		}
	}
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
	return s;
}

/* cm_session_of: numbers are random, so that of a parent, or of another process that has sent the descriptor, is not
 * found. */
struct cm_session *cm_session_of(uint64_t number)
{
	struct cm_session *s = atomic_load(&current);

	while (s && s->number != number)
		s = s->before;
	return s;
}

/* cm_device: a number that cannot be stands for the first device, so the result is never NULL. */
const struct goroce_device_reply *cm_device(const struct cm_session *s, uint32_t device)
{
	return &s->devices[device && device <= s->num_devices ? device - 1 : 0];
}

uint64_t cm_number(const struct cm_session *s)
{
	return s->number;
}

struct cm_ids *cm_ids(struct cm_session *s)
{
	return &s->ids;
}

bool cm_ended(const struct cm_session *s)
{
	return atomic_load(&s->control.gone);
}

void cm_end(struct cm_session *s)
{
	control_end(&s->control, EIO);
}

/* cm_ask makes a request whose reply has no descriptors. */
int cm_ask(struct cm_session *s, uint16_t op, const void *body, size_t len, void *reply, size_t size)
{
	struct call call = { .op = op, .body = body, .len = len, .give = -1, .reply = reply, .size = size };

	return control_call(&s->control, &call);
}

/* cm_ask_fd makes a request whose reply has one descriptor. That is the program's to leave to children. */
int cm_ask_fd(struct cm_session *s, uint16_t op, const void *body, size_t len, void *reply, size_t size, int *fd)
{
	struct call call = {
		.op = op, .body = body, .len = len, .give = -1, .reply = reply, .size = size, .want_fds = 1,
	};
	int err = control_call(&s->control, &call);

	if (!err) {
		fds_give(call.fds[0]);
		*fd = call.fds[0];
	}
	return err;
}
