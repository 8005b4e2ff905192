/* Requests to the daemon and its replies, on the control socket (docs/abi.md). */
#include "client.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

/* How long the daemon may take to answer, in seconds. */
enum { PATIENCE = 30 };

/* The errno of each status of a reply. */
static const int errnos[] = {
	0, EIO, EINVAL, EINVAL, ENOMEM, ENOMEM, EBUSY, EBADF, EOPNOTSUPP, EINVAL, EPERM, EPROTO, EADDRINUSE,
	ENODEV, EINVAL, EADDRNOTAVAIL, ENETUNREACH,
};

union message {
	struct goroce_header header;
	char bytes[GOROCE_MAX_MESSAGE];
};

union rights {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(GOROCE_MAX_FDS * sizeof(int))];
};

/* control_end makes all later calls fail. The first reason stays. */
void control_end(struct control *c, int why)
{
	int none = 0;

	atomic_compare_exchange_strong(&c->gone, &none, why);
}

void control_close(struct control *c)
{
	fds_close(c->fd);
	c->fd = -1;
	pthread_mutex_destroy(&c->lock);
}

static ssize_t send_request(struct control *c, const struct call *call)
{
	struct goroce_header header = {.op = call->op, .seq = ++c->seq};
	struct iovec parts[] = {{&header, sizeof(header)}, {(void *)call->body, call->len}};
	struct msghdr msg = {.msg_iov = parts, .msg_iovlen = call->len ? 2 : 1};
	union rights rights = {0};
	ssize_t n;

	if (call->give >= 0) {
		msg.msg_control = &rights;
		msg.msg_controllen = CMSG_SPACE(sizeof(int));
		rights.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&rights.header), &call->give, sizeof(int));
	}
	do
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

/* take_fds keeps the descriptors of a message, and returns how many there are. */
static int take_fds(struct msghdr *msg, int fds[GOROCE_MAX_FDS])
{
	int n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		int more = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds + n, CMSG_DATA(h), (size_t)more * sizeof(int));
		for (int end = n + more; n < end; n++)
			fds[n] = fds_add(fds[n]);
	}
	return n;
}

/* await waits for the next message, or the end of the connection. */
static bool await(const struct control *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int n;

	do
		n = poll(&p, 1, PATIENCE * 1000);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static bool all_there(const int *fds, int n)
{
	while (n > 0 && fds[n - 1] >= 0)
		n--;
	return n == 0;
}

/* receive returns the bytes of the next message, or -1. *num_fds is -1 if the process has no room for its descriptors. */
static ssize_t receive(struct control *c, union message *m, int fds[GOROCE_MAX_FDS], int *num_fds)
{
	struct iovec part = {m, sizeof(*m)};
	union rights rights;
	struct msghdr msg;
	ssize_t n;

	do {
		if (!await(c))
			return -1;
		msg = (struct msghdr){
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof(rights),
		};
		fds_begin();
		n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		*num_fds = n < 0 ? 0 : take_fds(&msg, fds);
		fds_end();
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < (ssize_t)sizeof(m->header) || msg.msg_flags & MSG_TRUNC) {
		close_all(fds, *num_fds);
		return -1;
	}
	if (msg.msg_flags & MSG_CTRUNC || !all_there(fds, *num_fds)) {
		close_all(fds, *num_fds);
		*num_fds = -1;
	}
	return n;
}

/* explain prints the four texts of a refusal. */
static void explain(const struct goroce_header *h, const char *text, size_t len)
{
	char words[4][256] = {"", "", "", ""};

	for (int i = 0; i < 4; i++) {
		uint16_t n;
		if (len < sizeof(n))
			break;
		memcpy(&n, text, sizeof(n));
		text += sizeof(n);
		len -= sizeof(n);
		if (n > len)
			break;
		memcpy(words[i], text, n < sizeof(words[i]) ? n : sizeof(words[i]) - 1);
		text += n;
		len -= n;
	}
	if (*words[1])
		debug("request %u: %s: %s is %s, allowed is %s (status %u)", h->op, words[0], words[1], words[2],
				words[3], h->status);
	else
		debug("request %u: %s (status %u)", h->op, words[0], h->status);
}

/* control_break ends the connection: requests, posts and polls fail with EIO. */
void control_break(struct control *c)
{
	control_end(c, EIO);
	shutdown(c->fd, SHUT_RDWR);
}

/* broken ends the connection, as the daemon does not keep to the protocol. */
static int broken(struct control *c, const struct call *call, const char *why)
{
	debug("request %u: %s", call->op, why);
	control_break(c);
	return EIO;
}

static int evaluate(struct control *c, struct call *call, const union message *m, size_t len, int num_fds)
{
	const struct goroce_header *h = &m->header;
	bool unread = call->op == GOROCE_HELLO && h->seq == 0 && h->status; /* refused before our hello was read */

	if (h->op != call->op || (h->seq != c->seq && !unread))
		return broken(c, call, "the daemon answers something else");
	len -= sizeof(*h);
	if (h->status) {
		explain(h, m->bytes + sizeof(*h), len);
		return h->status < sizeof(errnos) / sizeof(*errnos) ? errnos[h->status] : EIO;
	}
	if (len > call->size || (len < call->size && !call->some))
		return broken(c, call, "the reply has another size; install the same goroced for program and daemon");
	if (num_fds != call->want_fds && call->want_fds >= 0)
		return broken(c, call, "the reply has another number of descriptors");
	if (len)
		memcpy(call->reply, m->bytes + sizeof(*h), len);
	call->got = len;
	call->want_fds = num_fds;
	return 0;
}

static int exchange(struct control *c, struct call *call);

/* undo closes what the daemon has made, whose descriptor this process has no room for. What belongs to the connection
 * ends with that. */
static int undo(struct control *c, const struct call *call, const union message *m)
{
	struct goroce_close_reply none;
	struct goroce_close made = {
		.kind = call->op == GOROCE_OPEN_CM ? GOROCE_KIND_CM_CHANNEL : GOROCE_KIND_CHANNEL,
	};
	struct call undo = {
		.op = GOROCE_CLOSE, .body = &made, .len = sizeof(made), .give = -1, .reply = &none, .size = sizeof(none),
	};

	debug("request %u: this process has too many descriptors open for that of the reply; RLIMIT_NOFILE (ulimit -n) "
	      "is its limit", call->op);
	if (call->op == GOROCE_CREATE_CHANNEL || call->op == GOROCE_OPEN_CM) {
		memcpy(&made.handle, m->bytes + sizeof(m->header), sizeof(made.handle));
		exchange(c, &undo);
	} else {
		control_end(c, EMFILE);
	}
	return EMFILE;
}

static int exchange(struct control *c, struct call *call)
{
	union message m;
	int num_fds, err, why = atomic_load(&c->gone);
	ssize_t n;

	if (why)
		return why;
	/* After EPIPE and ECONNRESET the daemon's last reply may still be read. */
	if (send_request(c, call) < 0 && errno != EPIPE && errno != ECONNRESET)
		return broken(c, call, strerror(errno));
	n = receive(c, &m, call->fds, &num_fds);
	if (n < 0)
		return broken(c, call, "the daemon has ended, or does not answer");
	err = evaluate(c, call, &m, (size_t)n, num_fds < 0 ? call->want_fds : num_fds);
	if (!err && num_fds < 0)
		return undo(c, call, &m);
	if (err)
		close_all(call->fds, num_fds);
	return err;
}

/* control_call returns 0, or the errno of the verb, and sets errno as ioctl(2) would. A thread is not cancelled while it
 * holds the lock. */
int control_call(struct control *c, struct call *call)
{
	int err, cancel;

	if ((err = atomic_load(&c->gone)))
		return failed(err);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&c->lock);
	err = exchange(c, call);
	pthread_mutex_unlock(&c->lock);
	pthread_setcancelstate(cancel, NULL);
	return err ? failed(err) : 0;
}

/* control_dial connects. The timeout is set first, since connect waits, too, if the backlog of the daemon is full. */
int control_dial(struct control *c, const char *path)
{
	const struct timeval patience = {.tv_sec = PATIENCE};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int err;

	used();
	if (strlen(path) >= sizeof(to.sun_path))
		return ENAMETOOLONG;
	strcpy(to.sun_path, path);
	memset(c, 0, sizeof(*c));
	fds_begin();
	c->fd = fds_add(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	fds_end();
	if (c->fd < 0)
		return errno;
	if (setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(c->fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		err = errno;
		fds_close(c->fd);
		return err;
	}
	pthread_mutex_init(&c->lock, NULL);
	return 0;
}
