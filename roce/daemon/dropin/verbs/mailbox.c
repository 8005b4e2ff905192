/*
 * A socket with a packet for each event: the asynchronous events of a context, or the completion events of a channel.
 * The program polls the socket and reads it by the library, so it must not be readable for an event of an object that
 * is destroyed: the call that the program makes then would find no event, and wait.
 *
 * When an object is closed the daemon says how many events of it were sent. Those that the program has not taken are
 * stale. They are skipped when they come to the front of the socket.
 *
 * Threads wait for events without the lock. mailbox_enter and mailbox_leave count them, so that mailbox_end can wait
 * until none is left before the socket is closed and the memory freed.
 */
#include "lib.h"

#include <fcntl.h>
#include <sys/socket.h>

/* Messages have one or two words of 32 bits: struct goroce_completion, struct goroce_event. */
enum { MAX_WORDS = 2 };

/* By this a signal handler knows whether the thread that it has interrupted is about to take events. */
static __thread unsigned entered; /* mailboxes of which this thread is a user */

/*
 * mailbox_open takes the socket, which the daemon sends non-blocking. Programs expect the descriptor to block, as the
 * kernel's does, until they set O_NONBLOCK themselves. After an error the caller still has the descriptor.
 */
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

/* follow takes the descriptor that the program has in its struct, as it may have moved the socket to another number:
 * rdma-core, too, reads from the number that is there. fds.c learns of it, which closes the socket in forked
 * children. A mailbox that is closed follows nothing: the number may be another file's. The caller holds the lock. */
static void follow(struct mailbox *m)
{
	int fd = m->at ? *m->at : m->fd;

	if (fd == m->fd || fd < 0 || m->fd < 0)
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
 * mailbox_end makes all threads that wait for events leave, with EBADF, and waits until they have. A signal handler
 * that has interrupted such a thread does not wait: the thread leaves after it. It still looks at the mailbox then, so
 * nobody may free that (stays). The caller holds no lock that the threads may wait for.
 *
 * It is called before the daemon closes its end of the socket, which the threads would take for the end of the daemon.
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

/* mailbox_close follows mailbox_end, or closes a mailbox that no thread can have entered. */
void mailbox_close(struct mailbox *m)
{
	fds_close(m->fd);
	m->fd = -1; /* a user that stays may be about to look at it */
	if (m->stays)
		return;
	pthread_cond_destroy(&m->left);
	pthread_mutex_destroy(&m->lock);
}

/* took_stale counts a stale event that was skipped. If that is before mailbox_expect_stale has counted it, m->stale
 * stays too high. Then drop_stale looks at the front of the socket more often than it needs to, and does no harm. */
static void took_stale(struct mailbox *m)
{
	if (m->stale)
		m->stale--;
}

/* drop_stale takes stale events away until the next one is live, so that the socket is readable for that only. Those
 * behind a live event wait for their turn. The caller holds the lock. */
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

/* take_waiting takes the next live event that is there: EAGAIN if there is none, EIO if the daemon has closed its
 * end. The caller holds the lock. */
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
 * mailbox_take takes the next event. It waits for one, unless the socket has O_NONBLOCK (EAGAIN), until a signal
 * whose handler has no SA_RESTART comes (EINTR). Events are taken under the lock, with cancellation disabled; the
 * wait is without the lock. The caller has entered. EBADF says that it must leave.
 *
 * The wait leaves the event in the socket (MSG_PEEK). So a thread that is cancelled in it loses none, and of several
 * threads that wake for one event those that come late find none, and wait again.
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

/*
 * mailbox_expect_stale says that n events are in the socket of an object that is closed. All of them are there: when
 * the daemon has answered the request to close, it sends no more of them. Cancellation is disabled, as the caller is
 * in the middle of ending the object, and recv is a cancellation point.
 */
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
