/* What libibverbs.so.1 and libgoroce-sys.so share: the way to the daemon. */
#ifndef CLIENT_H
#define CLIENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/un.h>

#include "goroce.h"

/* failed sets errno and returns it. Verbs return an errno; programs print errno, too, which the kernel's ioctl sets. */
static inline int failed(int err)
{
	errno = err;
	return err;
}

/* debug.c: what is said on standard error, and whether the user wants to hear it. */
bool debugging(void);
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool quiet(void);

/* used.c; it reports whether this was the first use */
bool used(void);

/* control.c: the control socket. */
struct control {
	int fd;               /* in fds.c's care: a child has it no more */
	pthread_mutex_t lock; /* one request at a time */
	uint32_t seq;         /* of the latest request; under the lock */
	atomic_int gone; /* 0, or why nothing works any more: EIO, ENODEV in a forked child that has none of its own */
};

/* A request, and what comes of it. The body is copied as it is: it has the layout of goroce.h. */
struct call {
	uint16_t op;
	const void *body;
	size_t len;
	int give; /* a descriptor to send along, or -1 */
	void *reply;
	size_t size, got; /* room for the reply's body, and what came */
	bool some;        /* the reply may have fewer than size bytes */
	/* How many descriptors the reply must have, -1 for any number; afterwards, how many it had. They are added
	 * (fds_add), and the caller's to close by fds_close. After an error there are none. */
	int want_fds, fds[GOROCE_MAX_FDS];
};

int control_dial(struct control *c, const char *path);
int control_call(struct control *c, struct call *call);
void control_end(struct control *c, int why);
void control_break(struct control *c);
void control_close(struct control *c);

/* fds.c: descriptors that no child may have. Those that are made here are added at once, between fds_begin and
 * fds_end; whoever has such a descriptor closes it by fds_close. */
void fds_watch(void);
void fds_begin(void);
int fds_add(int fd);
void fds_end(void);
void fds_give(int fd);
int fds_move(int from, int to);
void fds_follow(int from, int to);
void fds_close(int fd);
void close_all(int *fds, int n);

/* find.c: where the daemon is. All is looked up anew each time. daemon_dial leaves the path of the socket, by which a
 * device is opened later. */
#define PATH_LEN sizeof(((struct sockaddr_un *)0)->sun_path)

enum { DAEMON_PATHS = 6 }; /* two in each of three directories */
int daemon_paths(char paths[DAEMON_PATHS][PATH_LEN]);
int daemon_dial(struct control *c, char path[PATH_LEN], struct goroce_hello_reply *r);
int daemon_hello(struct control *c, struct goroce_hello_reply *r);

#endif
