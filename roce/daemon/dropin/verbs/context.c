/*
 * An open device: a connection to the daemon. It has a control socket for requests, a socket of asynchronous events,
 * doorbells, and a thread that waits for its end. With the connection the daemon closes all objects that were made on
 * it.
 *
 * A forked child has the context without the connection (fork.c), and makes one at the first call that needs it. So
 * what asks the device, or makes an object, begins with ready; what needs an object begins with dead (lib.h).
 */
#include "lib.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
struct context *contexts;

/* no_object returns the errno of a verb. A handle of no object gives ENOENT, as Linux has it; for the connection
 * manager's library, which has control_call's errno, its IDs are numbers of their own. */
int no_object(int err) { return err == EBADF ? failed(ENOENT) : err; }

/* context_call is control_call on the connection of this process. It returns an errno, and sets errno. */
int context_call(struct ibv_context *v, struct call *call)
{
	int err = ready(v);

	return err ? failed(err) : no_object(control_call(&context_of(v)->control, call));
}

/* ask sends a request whose reply has size bytes and no descriptors. */
int ask(struct ibv_context *v, uint16_t op, const void *body, size_t len, void *reply, size_t size)
{
	return ask_fds(v, op, body, len, reply, size, 0, NULL);
}

/* ask_fds is ask for a reply with descriptors, which are the caller's then. */
int ask_fds(struct ibv_context *v, uint16_t op, const void *body, size_t len, void *reply, size_t size, int want,
		int *fds)
{
	struct call call = {
		.op = op, .body = body, .len = len, .give = -1, .reply = reply, .size = size, .want_fds = want,
	};
	int err = context_call(v, &call);

	if (!err && want)
		memcpy(fds, call.fds, (size_t)want * sizeof(*fds));
	return err;
}

/*
 * close_handle closes an object of the daemon, which must be of a kind. If the daemon has ended, so have all objects:
 * to destroy them succeeds, so that programs can free what they have. r may be NULL. It is zero if there was no
 * reply, as no event is to come then.
 */
int close_handle(struct ibv_context *v, uint32_t kind, uint32_t handle, struct goroce_close_reply *r)
{
	struct goroce_close o = {handle, kind};
	struct goroce_close_reply none;
	int err;

	memset(r ? r : &none, 0, sizeof(none));
	err = ask(v, GOROCE_CLOSE, &o, sizeof(o), r ? r : &none, sizeof(none));
	return err && gone(v) == EIO ? 0 : err;
}

/* close_object is close_handle for what may be the parent's, which stays open there. */
int close_object(struct ibv_context *v, uint32_t born, uint32_t kind, uint32_t handle)
{
	return inherited(born) ? 0 : close_handle(v, kind, handle, NULL);
}

/* watch waits for the end of the connection, so that posts and polls learn of it without a system call. A program that
 * only polls makes no request, by which it would notice. */
static void *watch(void *arg)
{
	struct context *c = arg;
	struct pollfd p = {.fd = c->control.fd, .events = POLLRDHUP};

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	control_end(&c->control, EIO);
	atomic_fetch_sub(&watchers, 1);
	return NULL;
}

/* start_watch runs watch in a thread that takes none of the program's signals: it gets the mask of the thread that
 * makes it. */
static int start_watch(struct context *c)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	atomic_fetch_add(&watchers, 1);
	err = pthread_create(&c->watcher, &attr, watch, c);
	if (err == EINVAL) /* glibc takes the program's thread-local variables from the stack: they need more */
		err = pthread_create(&c->watcher, NULL, watch, c);
	if (err)
		atomic_fetch_sub(&watchers, 1);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

/* attach takes the descriptor of the reply to open, and shares doorbells. After an error the descriptor is closed. */
static int attach(struct context *c, const struct goroce_open_reply *r, int fd)
{
	int err = mailbox_open(&c->events, fd);

	if (err) {
		fds_close(fd);
		return err;
	}
	err = doorbells_open(c, r);
	if (err)
		mailbox_close(&c->events);
	return err;
}

/* hello opens the device on a new connection. It asks for the device by its name: another daemon may listen at the
 * socket by now, with other devices. After an error the control socket is the caller's to close. */
static int hello(struct context *c)
{
	struct goroce_hello_reply reply;
	struct goroce_open_reply r;
	struct goroce_open open = {{0}};
	struct call call = {
		.op = GOROCE_OPEN, .body = &open, .len = sizeof(open), .give = -1, .reply = &r, .size = sizeof(r),
		.want_fds = 1,
	};
	int err;

	memcpy(open.device, c->device->attr.name, sizeof(open.device));
	err = daemon_hello(&c->control, &reply);
	if (!err)
		err = control_call(&c->control, &call);
	if (!err)
		err = attach(c, &r, *call.fds);
	if (err)
		return err;
	c->attr = r.device;
	c->v.context.num_comp_vectors = r.device.num_comp_vectors ? (int)r.device.num_comp_vectors : 1;
	err = start_watch(c);
	if (err) {
		mailbox_close(&c->events);
		doorbells_close(&c->doorbells);
	}
	return err;
}

/* open_device makes the connection, and all that belongs to it, or nothing. */
static int open_device(struct context *c)
{
	int err = control_dial(&c->control, c->device->socket);

	if (err)
		return err;
	err = hello(c);
	if (err)
		control_close(&c->control);
	return err;
}

/*
 * reopen makes the connection of a child. Its asynchronous events come by the number that the parent's had, as the
 * program may have noted that elsewhere, unless the program has closed it in the meantime. The file status flags, of
 * which O_NONBLOCK matters, go along. The caller holds the lock of all contexts.
 *
 * All errors are ENODEV, as for a device that is not there. The context is made what it was, and the next call tries
 * again.
 */
static int reopen(struct context *c)
{
	int err, number = c->v.context.async_fd, flags = fcntl(number, F_GETFL);

	err = open_device(c);
	if (err) {
		debug("open %s in a forked child: %s", c->device->v.name, strerror(err));
		context_inherit(c);
		return ENODEV;
	}
	if (c->holds && flags >= 0 && !fds_move(c->events.fd, number)) {
		fcntl(number, F_SETFL, flags);
		c->events.fd = number;
	}
	c->holds = false;
	c->v.context.async_fd = c->events.fd;
	c->events.at = &c->v.context.async_fd;
	c->v.context.cmd_fd = c->control.fd;
	atomic_store(&c->born, forks);
	return 0;
}

/*
 * ready returns 0 if requests can be made, or why not. A child makes its connection with the first one: of several
 * threads one does, and the others wait. born says that all is there, and is looked at first without the lock. Nobody
 * is cancelled while the lock is held, as connecting has cancellation points.
 */
int ready(struct ibv_context *v)
{
	struct context *c = context_of(v);
	int err = 0, cancel;

	if (!inherited(atomic_load(&c->born)))
		return gone(v);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&contexts_lock);
	if (inherited(atomic_load(&c->born)))
		err = reopen(c);
	pthread_mutex_unlock(&contexts_lock);
	pthread_setcancelstate(cancel, NULL);
	return err ? err : gone(v);
}

/* enlist makes forks look at a context, which must be whole. */
static void enlist(struct context *c)
{
	pthread_mutex_lock(&contexts_lock);
	c->next = contexts;
	c->link = &contexts;
	if (contexts)
		contexts->link = &c->next;
	contexts = c;
	pthread_mutex_unlock(&contexts_lock);
}

static void delist(struct context *c)
{
	pthread_mutex_lock(&contexts_lock);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	pthread_mutex_unlock(&contexts_lock);
}

/* ibv_open_device makes a context. It keeps the device, so that the program may free the list. errno tells why the
 * daemon could not be reached, or has refused. */
EXPORT struct ibv_context *ibv_open_device(struct ibv_device *v)
{
	struct context *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return NULL;
	c->device = container_of(v, struct device, v);
	pthread_mutex_init(&c->objects.lock, NULL);
	regions_init(&c->regions);
	shares_init(&c->shares);
	err = open_device(c);
	if (err) {
		debug("open %s: %s", v->name, strerror(err));
		free(c);
		return fail(err);
	}
	atomic_store(&c->born, forks);
	atomic_fetch_add(&c->device->refs, 1);
	context_set_ops(&c->v);
	c->v.context.device = v;
	c->v.context.cmd_fd = c->control.fd;
	c->v.context.async_fd = c->events.fd;
	c->events.at = &c->v.context.async_fd;
	pthread_mutex_init(&c->v.context.mutex, NULL);
	fork_watch();
	enlist(c);
	return &c->v.context;
}

/*
 * ibv_close_device ends the connection, so the daemon closes all that the program has left open. Such objects stay in
 * this process's memory, as threads may still look at them. Threads that wait for events leave first, with EBADF:
 * later they would read the end of the connection, and report IBV_EVENT_DEVICE_FATAL. The watching thread uses the
 * control socket, and has ended before that is closed. Memory that was moved for its regions (GOROCE_MR=remap)
 * becomes private again. If a signal handler closes the device for whose event its thread waits, the context is never
 * freed.
 */
EXPORT int ibv_close_device(struct ibv_context *v)
{
	struct context *c = context_of(v);

	delist(c);
	if (!inherited(atomic_load(&c->born))) { /* else there is neither connection nor thread */
		mailbox_end(&c->events);
		control_end(&c->control, EIO);
		shutdown(c->control.fd, SHUT_RDWR);
		pthread_join(c->watcher, NULL);
		doorbells_close(&c->doorbells);
	} else if (c->holds) {
		close(v->async_fd);
	}
	mailbox_close(&c->events);
	control_close(&c->control);
	table_clear(&c->objects);
	regions_clear(&c->regions);
	shares_clear(&c->shares);
	pthread_mutex_destroy(&v->mutex);
	device_release(c->device);
	if (!c->events.stays)
		free(c);
	return 0;
}
