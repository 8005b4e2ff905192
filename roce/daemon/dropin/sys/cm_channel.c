/*
 * Descriptors of event channels: open, and what tells them from others. cm.h says why there is no table of them. All
 * that is known of a channel is in the name of its socket, which lasts as long as the socket, is the same for all
 * descriptors of it, and can be read without a lock in any process that has one.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cm.h"
#include "sys.h"

/* Set with the first channel, and never cleared: descriptors may be duplicated and closed in ways that the library
 * does not see. A child inherits it with the descriptors. The load is relaxed, as whoever has a descriptor has got it
 * after it was set. */
static atomic_bool used;

bool cm_used(void)
{
	return atomic_load_explicit(&used, memory_order_relaxed);
}

/* The abstract name of a channel's socket: connection, handle, and what nobody can guess and take before. */
static const char name_form[] = "goroce-cm/%016" PRIx64 "/%08" PRIx32 "/%016" PRIx64;
static const char name_pattern[] = "goroce-cm/hhhhhhhhhhhhhhhh/hhhhhhhh/hhhhhhhhhhhhhhhh"; /* h: a hexadecimal digit */

enum { NAME_LEN = sizeof(name_pattern) - 1 };

/* name_of reads the name of a socket into text; false if it is not that of a channel. It leaves errno alone, as calls
 * that succeed do. All of the name is compared: programs may have sockets whose names begin alike. */
static bool name_of(int fd, char text[NAME_LEN + 1])
{
	struct sockaddr_un at;
	socklen_t len = sizeof(at);
	int saved = errno;
	bool ok = getsockname(fd, (struct sockaddr *)&at, &len) == 0;

	errno = saved;
	if (!ok || at.sun_family != AF_UNIX || len != offsetof(struct sockaddr_un, sun_path) + 1 + NAME_LEN ||
	    at.sun_path[0] != '\0')
		return false;
	for (int i = 0; i < NAME_LEN; i++) {
		unsigned char c = at.sun_path[1 + i];

		if (name_pattern[i] == 'h' ? !isxdigit(c) : c != name_pattern[i])
			return false;
	}
	memcpy(text, at.sun_path + 1, NAME_LEN);
	text[NAME_LEN] = '\0';
	return true;
}

bool cm_is_channel(int fd)
{
	char text[NAME_LEN + 1];

	return name_of(fd, text);
}

/* Only the first channel needs to be found: afterwards all descriptors are looked at. */
void cm_received(struct msghdr *msg)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		const unsigned char *fds = CMSG_DATA(h);
		size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, fds + i * sizeof(fd), sizeof(fd));
			if (cm_is_channel(fd))
				atomic_store(&used, true);
		}
	}
}

/* cm_find: a connection whose daemon has ended is found, too, as commands go on to be answered then (cm_ended). */
int cm_find(int fd, struct cm_channel *ch)
{
	char text[NAME_LEN + 1];
	uint64_t number, rest;

	if (!name_of(fd, text))
		return EBADF;
	if (sscanf(text, "goroce-cm/%16" SCNx64 "/%8" SCNx32 "/%16" SCNx64, &number, &ch->handle, &rest) != 3)
		return EACCES;
	ch->session = cm_session_of(number);
	ch->fd = fd;
	return ch->session ? 0 : EACCES;
}

/* cm_drain takes the one message that the daemon has said there is to take, if it has. It stands there while events
 * wait. The daemon says so once, when no event is left: a later event has a message of its own, and one stays if both
 * are there. */
void cm_drain(int fd, uint32_t messages)
{
	struct goroce_cm_signal signal;

	if (messages && recv(fd, &signal, sizeof(signal), MSG_DONTWAIT) < 0)
		return; /* the daemon has ended, as poll will say */
}

enum { ADDR_LEN = offsetof(struct sockaddr_un, sun_path) + 1 + NAME_LEN };

/* name gives a socket a name of a channel's. The last number is random: another process could take a name that it can
 * guess. */
static int name(int fd, const struct cm_session *s, uint32_t handle, struct sockaddr_un *at)
{
	uint64_t rest;

	if (getrandom(&rest, sizeof(rest), 0) != sizeof(rest))
		return EIO;
	*at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, name_form, cm_number(s), handle, rest);
	return bind(fd, (struct sockaddr *)at, ADDR_LEN) < 0 ? errno : 0;
}

/*
 * cm_silence replaces the channel's socket, on which poll would report the end of the daemon for ever. The new socket
 * has a name of this channel, too. It is connected to itself, and so takes no messages of others: it is never
 * readable. The exchange is one step (dup3), as the program may close or duplicate descriptors meanwhile. A duplicate
 * that the program has made before is replaced when GET_EVENT fails on it, too. If there is no descriptor left, all
 * stays as it is.
 */
void cm_silence(const struct cm_channel *ch)
{
	int flags = fcntl(ch->fd, F_GETFL), fd_flags = fcntl(ch->fd, F_GETFD), type, quiet;
	socklen_t len = sizeof(type);
	struct sockaddr_un at;

	if (getsockopt(ch->fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type == SOCK_DGRAM)
		return; /* it is silent */
	quiet = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (quiet < 0)
		return;
	if (!name(quiet, ch->session, ch->handle, &at) && connect(quiet, (struct sockaddr *)&at, ADDR_LEN) == 0 &&
	    fcntl(quiet, F_SETFL, flags) == 0)
		dup3(quiet, ch->fd, fd_flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	close(quiet);
}

/* set_up gives the socket its name, and the flags of open: the reply has brought it close-on-exec, and the daemon has
 * made it non-blocking. */
static int set_up(int fd, const struct cm_session *s, uint32_t handle, int flags)
{
	struct sockaddr_un at;
	int err = name(fd, s, handle, &at);

	if (err)
		return err;
	if (fcntl(fd, F_SETFL, O_RDWR | (flags & O_NONBLOCK)) < 0 ||
	    fcntl(fd, F_SETFD, flags & O_CLOEXEC ? FD_CLOEXEC : 0) < 0)
		return errno;
	return 0;
}

/* open_channel opens a channel of the daemon. To close the descriptor is to close the channel, also after a failure
 * here. */
static int open_channel(int flags, int *fd)
{
	const struct goroce_open_cm how = { .flags = GOROCE_CM_ALL_DEVICES };
	struct goroce_object made;
	struct cm_session *s;
	int err;

	s = cm_session(&err);
	if (!err)
		err = cm_ask_fd(s, GOROCE_OPEN_CM, &how, sizeof(how), &made, sizeof(made), fd);
	if (err)
		return err;
	err = set_up(*fd, s, made.handle, flags);
	if (err)
		close(*fd);
	else
		atomic_store(&used, true);
	return err;
}

/* sys_cm: to look at the file (O_PATH) opens no channel. The path is one in the tree, after sys_map. */
bool sys_cm(const char *path, int flags, int *fd)
{
	static const char end[] = ".d/dev/infiniband/rdma_cm";
	size_t n = strlen(path);
	int err;

	if ((flags & (O_DIRECTORY | O_PATH)) || n < sizeof(end) - 1 || strcmp(path + n - (sizeof(end) - 1), end) != 0)
		return false;
	err = open_channel(flags, fd);
	if (err) {
		*fd = -1;
		errno = err;
	}
	return true;
}
