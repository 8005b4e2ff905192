/*
 * Requests to the daemon and its replies, on the control socket (docs/abi.md). Verbs that are not posts or polls come
 * here: the thread that makes a request holds the connection's lock, sends one packet, and waits for the one that
 * answers it. The daemon answers in order, so there is nothing to match but for control: whatever does not fit ends
 * the connection, as program and daemon then disagree about which objects there are.
 *
 * The program's signals and cancellations must not come between a request and its reply. Signals are passed over, and
 * a thread is not cancelled while it holds the lock. The daemon must not hold up the program for ever either: all
 * waiting has an end (PATIENCE).
 */
#include "client.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

/* How long the daemon may take to answer, in seconds. */
enum { PATIENCE = 30 };

/* The errno of each status of a reply, by the table of docs/abi.md. That of a handle of no object is EBADF here; each
 * library makes of it what the kernel has (no_object, cm_request). */
static const int errnos[] = {
	0, EIO, EINVAL, EINVAL, ENOMEM, ENOMEM, EBUSY, EBADF, EOPNOTSUPP, EINVAL, EPERM, EPROTO, EADDRINUSE,
	ENODEV, EINVAL, EADDRNOTAVAIL, ENETUNREACH,
};

/* A message as it comes. The union aligns the body for the structs of goroce.h. */
union message {
	struct goroce_header header;
	char bytes[GOROCE_MAX_MESSAGE];
};

/* Room for the descriptors of a message: the kernel drops what is beyond, and sets MSG_CTRUNC. */
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

/* send_request sends header and body as one packet, without copying the body. MSG_NOSIGNAL: SIGPIPE would end a
 * program that knows nothing of this socket. It waits at most PATIENCE (SO_SNDTIMEO), when the daemon does not
 * read. */
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

/* take_fds keeps the descriptors of a message, and returns how many there are. One for which there is no memory is
 * closed, and stands as -1 among them (fds_add). The caller is between fds_begin and fds_end. */
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

/* await waits for the next message, or the end of the connection; false after PATIENCE. It waits by poll and not by
 * recvmsg: descriptors that recvmsg brings must be kept before a fork, so forks wait for it, and they must not wait
 * for the daemon. */
static bool await(const struct control *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int n;

	do
		n = poll(&p, 1, PATIENCE * 1000);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

/* all_there reports whether all descriptors of a message could be kept. */
static bool all_there(const int *fds, int n)
{
	while (n > 0 && fds[n - 1] >= 0)
		n--;
	return n == 0;
}

/* receive returns the bytes of the next message, or -1. *num_fds is -1 if the process has no room for its
 * descriptors: the message is whole without them, and those that did come are closed. */
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

/* explain prints the four texts of a refusal: what was tried, and of an attribute its name, its value and what is
 * allowed. Each has its length before it, which is not trusted. */
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

/* control_break ends the connection: requests, posts and polls fail with EIO. It is also for callers that
 * cannot follow what the daemon has done, as when the new ring of a queue is of no use. The descriptor stays
 * open until control_close, since other threads may be about to use its number. The shutdown wakes the thread
 * that watches it. */
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

/* evaluate compares a reply with its request. A refusal is an errno, and all else must be as the request expects it.
 * Replies of another length come from a goroced of another version, whose structs differ. */
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

/* undo closes what the daemon has made, whose descriptor this process has no room for. Of a channel nobody
 * could ever read the events. What belongs to the connection ends with that: all later requests fail, and the
 * caller closes it. */
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

/* exchange sends a request and takes its reply, with the lock held. For undo it makes a second request before the
 * first has returned to the caller, under the same lock. */
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

/* control_call returns 0, or the errno of the verb, and sets errno as ioctl(2) would. A thread is not cancelled while
 * it holds the lock. */
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

/* control_dial connects; all of *c is set. The timeout is set first, since connect waits, too, if the backlog of the
 * daemon is full. After an error there is nothing to close. It counts as a use of RDMA (used.c), whether or not a
 * daemon is there. */
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
