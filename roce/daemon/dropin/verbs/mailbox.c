/*
 * A socket with a packet for each event. The program polls the socket and reads it by the
 * library, so it must not be readable for an event of an object that is destroyed.
 */
#include "lib.h"

#include <fcntl.h>
#include <sys/socket.h>

enum { MAX_WORDS = 2 };

static __thread unsigned entered; /* mailboxes of which this thread is a user */

/* mailbox_open takes the socket, which the daemon sends non-blocking. */
int mailbox_open(struct mailbox *m, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return errno;
	*m = (struct mailbox){.fd = fd};
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->left, NULL);
	return 0;
}

/* follow takes the descriptor that the program has in its struct, as it may have moved the socket to another number. The
 * caller holds the lock. */
static void follow(struct mailbox *m)
{
	int fd = m->at ? *m->at : m->fd;

	if (fd == m->fd || fd < 0)
		return;
	fds_follow(m->fd, fd);
	m->fd = fd;
}

/* mailbox_enter is called before a thread takes events. Until mailbox_leave neither the mailbox nor what it belongs to
 * is freed. EBADF if that is being closed. */
int mailbox_enter(struct mailbox *m)
{
	int err;

	pthread_mutex_lock(&m->lock);
	err = m->ending ? EBADF : 0;
	m->users += !err;
	pthread_mutex_unlock(&m->lock);
	entered += !err;
	return err;
}

/* mailbox_leave is a cleanup handler, too: a thread may be cancelled while it waits. */
void mailbox_leave(void *mailbox)
{
	struct mailbox *m = mailbox;

	entered--;
	pthread_mutex_lock(&m->lock);
	if (!--m->users)
		pthread_cond_broadcast(&m->left);
	pthread_mutex_unlock(&m->lock);
}

/*
 * mailbox_end makes all threads that wait for events leave, with EBADF. A signal handler that has interrupted such a
 * thread does not wait: the thread leaves after it.
 */
void mailbox_end(struct mailbox *m)
{
	pthread_mutex_lock(&m->lock);
	m->ending = true;
	follow(m);
	shutdown(m->fd, SHUT_RDWR); /* wakes them */
	while (m->users && !entered)
		pthread_cond_wait(&m->left, &m->lock);
	m->stays = m->users;
	pthread_mutex_unlock(&m->lock);
}

void mailbox_close(struct mailbox *m)
{
	fds_close(m->fd);
	m->fd = -1; /* a user that stays may be about to look at it */
	if (m->stays)
		return;
	pthread_cond_destroy(&m->left);
	pthread_mutex_destroy(&m->lock);
}

static void took_stale(struct mailbox *m)
{
	if (m->stale)
		m->stale--;
}

/* drop_stale takes stale events away until the next one is live, so that the socket is readable for that only. */
static void drop_stale(struct mailbox *m, size_t words, mailbox_live *live, void *arg)
{
	uint32_t message[MAX_WORDS];
	ssize_t size = (ssize_t)(words * sizeof(uint32_t));

	while (m->stale && recv(m->fd, message, sizeof(message), MSG_DONTWAIT | MSG_PEEK) == size) {
		if (live(arg, message, false))
			break;
		if (recv(m->fd, message, sizeof(message), MSG_DONTWAIT) != size)
			break;
		took_stale(m);
	}
}

/* take_waiting takes the next live event that is there: EAGAIN if there is none, EIO at the end. */
static int take_waiting(struct mailbox *m, size_t words, mailbox_live *live, void *arg)
{
	uint32_t message[MAX_WORDS];
	ssize_t n;

	for (;;) {
		n = recv(m->fd, message, sizeof(message), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (n != (ssize_t)(words * sizeof(uint32_t)))
			return EIO;
		if (live(arg, message, true))
			break;
		took_stale(m);
	}
	drop_stale(m, words, live, arg);
	return 0;
}

/*
 * mailbox_take takes the next event. It waits for one, unless the socket has O_NONBLOCK (EAGAIN), until a signal whose
 * handler has no SA_RESTART comes (EINTR). Events are taken under the lock, with cancellation disabled; the wait is
 * without the lock. The caller has entered. EBADF says that it must leave.
 */
int mailbox_take(struct mailbox *m, size_t words, mailbox_live *live, void *arg)
{
	int err, cancel, fd;
	char byte;

	for (;;) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		pthread_mutex_lock(&m->lock);
		follow(m);
		fd = m->fd;
		err = m->ending ? EBADF : take_waiting(m, words, live, arg);
		pthread_mutex_unlock(&m->lock);
		pthread_setcancelstate(cancel, NULL);
		if (err != EAGAIN)
			return err;
		if (recv(fd, &byte, sizeof(byte), MSG_PEEK) < 0)
			return errno;
	}
}

/* mailbox_expect_stale says that n events are in the socket of an object that is closed. */
void mailbox_expect_stale(struct mailbox *m, uint32_t n, size_t words, mailbox_live *live, void *arg)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&m->lock);
	m->stale += n;
	follow(m);
	drop_stale(m, words, live, arg);
	pthread_mutex_unlock(&m->lock);
	pthread_setcancelstate(cancel, NULL);
}
