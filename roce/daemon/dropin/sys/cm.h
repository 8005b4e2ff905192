/*
 * /dev/infiniband/rdma_cm: librdmacm's connections by address, served by the daemon's connection manager
 * (docs/abi.md, "Connections by address").
 *
 * The descriptor. What open() returns is the socket of an event channel of the daemon: it is readable while events
 * wait, so poll, select and epoll work on it, also if it was duplicated. The program never reads it; it write()s
 * commands (rdma/rdma_user_cm.h), and these become requests on a control connection of this process. The daemon
 * ends the channel and its IDs when the last descriptor of the socket is closed, by whatever call, or the process
 * ends. So nothing is to be done for close(), dup() and exec().
 *
 * Which descriptors are channels. The socket is bound to an abstract name with the channel's handle, so getsockname()
 * tells, whatever number the descriptor has, and no table must follow what the program does with descriptors. The
 * name has a random number of the control connection: the handle means nothing on another one. A forked child has
 * a connection of its own, so its parent's channels fail there with EACCES, as the kernel has it for a process whose
 * credentials are others than those of open().
 *
 * IDs. The number of an ID is the daemon's handle. The program's cookie of an ID and the count of events that it has
 * taken are kept by the daemon, in whose order of requests they are exact. Events of a new ID that has no cookie
 * yet are dropped, as the kernel does.
 *
 * The daemon's end. The library knows itself which IDs a process has, and what of them is needed then (cm_ids.c). GET_EVENT
 * reports RDMA_CM_EVENT_DEVICE_REMOVAL for each that is bound to a device, as the kernel does when a device goes, and
 * fails from then on, as other commands do; DESTROY_ID goes on to work. After the first failure the descriptor is not
 * readable any more, so a program that polls it and passes over errors does not spin.
 *
 * QPs. CONNECT and ACCEPT name a QP of libibverbs, which has a connection of its own to the daemon: the daemon takes a QP
 * of the same process only (SO_PEERCRED).
 */
#ifndef GOROCE_SYS_CM_H
#define GOROCE_SYS_CM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../client/goroce.h"

/* cm_session.c: the control connection. */
struct cm_session;

struct cm_session *cm_session(int *err);
/* cm_session_of returns the connection with a number, also if its daemon has ended; NULL if it is another process's. */
struct cm_session *cm_session_of(uint64_t number);
/* cm_device returns a device of the daemon, by 1 more than its index; 0 is the connection's own. */
const struct goroce_device_reply *cm_device(const struct cm_session *s, uint32_t device);
uint64_t cm_number(const struct cm_session *s);
struct cm_ids *cm_ids(struct cm_session *s);
/* cm_ended reports whether the daemon has ended; cm_end makes it so for this process. */
bool cm_ended(const struct cm_session *s);
void cm_end(struct cm_session *s);
int cm_ask(struct cm_session *s, uint16_t op, const void *body, size_t len, void *reply, size_t size);
int cm_ask_fd(struct cm_session *s, uint16_t op, const void *body, size_t len, void *reply, size_t size, int *fd);

/* cm_ids.c: what the process knows of the IDs of a connection. */
struct cm_id {
	uint32_t handle, channel;
	uint64_t cookie; /* 0 for a request that is not accepted */
	uint32_t events; /* that the program has taken */
	bool placed;     /* bound to a device, and not told of its end */
};

struct cm_ids {
	pthread_mutex_t lock;
	struct cm_id_entry *slots[1024]; /* by handle */
};

int cm_ids_add(struct cm_ids *t, struct cm_id id);
/* cm_ids_take forgets an ID; false if there is no such ID. */
bool cm_ids_take(struct cm_ids *t, uint32_t handle, struct cm_id *taken);
/* cm_ids_change does one of the following to an ID, if there is one. */
void cm_ids_change(struct cm_ids *t, uint32_t handle, void (*change)(struct cm_id *id, uint64_t value), uint64_t value);
void cm_id_placed(struct cm_id *id, uint64_t unused);
void cm_id_named(struct cm_id *id, uint64_t cookie);
void cm_id_moved(struct cm_id *id, uint64_t channel);
void cm_id_counted(struct cm_id *id, uint64_t events);
/* cm_ids_removed takes the next ID of a channel that is to hear that its device is gone. */
bool cm_ids_removed(struct cm_ids *t, uint32_t channel, struct cm_id *told);

/* cm_channel.c: descriptors of channels. */
struct cm_channel {
	struct cm_session *session;
	int fd;
	uint32_t handle;
};

/* cm_used reports whether this process has, or its parents had, any channel: it costs a load. */
bool cm_used(void);
struct msghdr;
/* cm_received looks for channels among the descriptors that came with a message. */
void cm_received(struct msghdr *msg);
/* cm_is_channel reports whether a descriptor is that of a channel, of whichever process. */
bool cm_is_channel(int fd);
/* cm_find finds the channel of a descriptor: 0, EBADF if it is none, EACCES if it is another process's. */
int cm_find(int fd, struct cm_channel *ch);
/* cm_drain takes messages off the channel's socket, as the daemon says. */
void cm_drain(int fd, uint32_t messages);
/* cm_silence makes the descriptor of a channel whose daemon has ended one that is never readable. */
void cm_silence(const struct cm_channel *ch);

/* cm_command.c, cm_query.c, cm_event.c: commands; all return an errno. */
#define CM_MAX_COMMAND 512

struct cm_command {
	struct cm_channel ch;
	union {
		uint64_t align;
		char in[CM_MAX_COMMAND];
	};
	size_t out; /* room for the response */
};

int cm_run(int fd, const void *buf, size_t len);
/* cm_copy_in and cm_copy_out copy from and to memory that the program names, which may not be there: EFAULT. */
int cm_copy_in(void *to, uint64_t from, size_t len);
int cm_copy_out(uint64_t to, const void *from, size_t len);
/* cm_respond copies a response, as much of it as there is room for. */
int cm_respond(const struct cm_command *c, uint64_t to, const void *response, size_t len);
/* cm_writable returns EFAULT if a response could not be written. */
int cm_writable(const struct cm_command *c, uint64_t to, size_t len);
/* cm_request asks the daemon. */
int cm_request(const struct cm_command *c, uint16_t op, const void *body, size_t len, void *reply, size_t size);
/* cm_request_id asks the daemon about an ID, which must be on the channel that the command is written to. */
int cm_request_id(const struct cm_command *c, uint16_t op, const void *body, size_t len, void *reply, size_t size);

int cm_query_route(struct cm_command *c);
int cm_query(struct cm_command *c);
int cm_get_event(struct cm_command *c);

/* cm_convert.c: structures of the kernel from the daemon's. */
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;

bool cm_addr_in(const void *sockaddr, struct goroce_cm_addr *to);
/* cm_addr_any reports whether an address is unspecified: none, 0.0.0.0 or ::. */
bool cm_addr_any(const struct goroce_cm_addr *a);
/* cm_addr_link_local reports whether an address is a link-local one of IPv6, which needs a scope. */
bool cm_addr_link_local(const struct goroce_cm_addr *a);
uint16_t cm_addr_out(const struct goroce_cm_addr *from, void *sockaddr);
void cm_ah_out(const struct goroce_ah *from, struct ib_uverbs_ah_attr *to);
void cm_qp_attr_out(const struct goroce_qp_attr *from, struct ib_uverbs_qp_attr *to);
uint8_t cm_mtu(uint32_t bytes);

#endif
