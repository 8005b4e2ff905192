/*
 * The commands that are written to a channel (rdma/rdma_user_cm.h), except QUERY, QUERY_ROUTE (cm_query.c) and
 * GET_EVENT (cm_event.c). Lengths and errno are those of the kernel's ucma.c, but a command that is shorter than its
 * structure is refused, where ucma.c reads beyond its end. Bytes behind the structure are ignored.
 *
 * A command comes by write: cm_run copies it, and a function of the table below carries it out in the thread that
 * writes. Most are a request to the daemon. That looks whether the ID is on the channel that the command was written
 * to: ENOENT if there is no such ID, EINVAL if it is on another channel. Responses go to the address in the command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cm.h"

enum { QPT_RC = 2, QPT_UD = 4, QPT_XRC_SEND = 9, QPT_XRC_RECV = 10, QPS_ERR = 6 };
enum { OPTION_PATH_MTU = 0x10001, MTU_4096 = 5 }; /* the daemon's option, in bytes; a code in a path record */
enum { REJ_CONSUMER = 28, REJ_VENDOR_OPTION = 35, MAX_ACK_TIMEOUT = 31 };

/* copy copies between this process's memory and itself; the kernel checks the addresses, as it does for its own
 * device: a command with a wrong address is EFAULT, and no SIGSEGV. */
static int copy(struct iovec *to, struct iovec *from, size_t len, bool in)
{
	ssize_t n;

	if (!len)
		return 0;
	n = in ? process_vm_readv(getpid(), to, 1, from, 1, 0) : process_vm_writev(getpid(), from, 1, to, 1, 0);
	if (n == (ssize_t)len)
		return 0;
	if (n >= 0 || errno == EFAULT)
		return EFAULT;
	memcpy(to->iov_base, from->iov_base, len); /* the call is forbidden here: the program's fault is its own */
	return 0;
}

int cm_copy_in(void *to, uint64_t from, size_t len)
{
	struct iovec dst = { to, len }, src = { (void *)(uintptr_t)from, len };

	return copy(&dst, &src, len, true);
}

int cm_copy_out(uint64_t to, const void *from, size_t len)
{
	struct iovec dst = { (void *)(uintptr_t)to, len }, src = { (void *)from, len };

	return copy(&dst, &src, len, false);
}

/* cm_respond: programs that are older than a field of the response have no room for it, and do not get it. */
int cm_respond(const struct cm_command *c, uint64_t to, const void *response, size_t len)
{
	return cm_copy_out(to, response, len < c->out ? len : c->out);
}

/* cm_writable returns EFAULT if a response could not be written: the event that it is for would be lost. It writes
 * what is there already. */
int cm_writable(const struct cm_command *c, uint64_t to, size_t len)
{
	char there[CM_MAX_COMMAND];
	int err;

	len = len < c->out ? len : c->out;
	if (len > sizeof(there))
		return EINVAL;
	err = cm_copy_in(there, to, len);
	return err ? err : cm_copy_out(to, there, len);
}

/* cm_request asks the daemon. The thread waits for the answer, which the daemon gives without asking anybody: what a
 * peer says, or the network, is told by an event. Where the kernel's ucma.c has another errno than verbs, it returns
 * that of ucma.c. */
int cm_request(const struct cm_command *c, uint16_t op, const void *body, size_t len, void *reply, size_t size)
{
	int err = cm_ask(c->ch.session, op, body, len, reply, size);

	switch (err) {
	case EBADF: /* no such ID */
		return ENOENT;
	case EPERM: /* a privileged port */
		return EACCES;
	}
	return err;
}

/* scoped makes a request about an ID, or a membership, that must be on a channel: the daemon takes the scope from
 * behind the body (docs/abi.md, "Connections by address"). */
static int scoped(const struct cm_command *c, struct goroce_cm_scope scope, uint16_t op, const void *body, size_t len,
		  void *reply, size_t size)
{
	char with_scope[CM_MAX_COMMAND];

	if (len > sizeof(with_scope) - sizeof(scope))
		return EINVAL;
	memcpy(with_scope, body, len);
	memcpy(with_scope + len, &scope, sizeof(scope));
	return cm_request(c, op, with_scope, len + sizeof(scope), reply, size);
}

int cm_request_id(const struct cm_command *c, uint16_t op, const void *body, size_t len, void *reply, size_t size)
{
	return scoped(c, (struct goroce_cm_scope){ .channel = c->ch.handle }, op, body, len, reply, size);
}

/* close_handle ends an ID, or a membership, and returns how many of its events were taken. Those that the program has
 * not taken vanish: if they were the last of the channel, it must not be readable any more. */
static int close_handle(const struct cm_command *c, uint32_t handle, uint32_t membership, uint32_t *events)
{
	struct goroce_cm_scope scope = { .channel = c->ch.handle, .membership = membership };
	struct goroce_close r = { .handle = handle, .kind = membership ? GOROCE_KIND_MEMBERSHIP : GOROCE_KIND_CM_ID };
	struct goroce_close_reply closed;
	int err = scoped(c, scope, GOROCE_CLOSE, &r, sizeof(r), &closed, sizeof(closed));

	if (err)
		return err;
	cm_drain(c->ch.fd, closed.signals);
	*events = closed.events;
	return 0;
}

/* made_handle tells the program a new handle. One that it cannot be told is closed, as ucma.c does. */
static int made_handle(const struct cm_command *c, uint64_t response, uint32_t handle, uint32_t membership)
{
	struct rdma_ucm_create_id_resp resp = { .id = handle };
	uint32_t events;
	int err = cm_respond(c, response, &resp, sizeof(resp));

	if (err)
		close_handle(c, handle, membership, &events);
	return err;
}

/* create_id makes an ID on the channel. The port space says of which type its QPs are, but for RDMA_PS_IB. It is
 * noted in cm_ids, not bound to a device yet. */
static int create_id(struct cm_command *c)
{
	const struct rdma_ucm_create_id *in = (void *)c->in;
	struct goroce_create_cm_id r = { .channel = c->ch.handle, .space = in->ps, .cookie = in->uid };
	struct goroce_object made;
	uint32_t events;
	int err;

	switch (in->ps) {
	case RDMA_PS_TCP:
		r.type = QPT_RC;
		break;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		r.type = QPT_UD;
		break;
	case RDMA_PS_IB: /* with the type that the program says; a connection of XRC QPs is one of RC */
		r.type = in->qp_type == QPT_XRC_SEND || in->qp_type == QPT_XRC_RECV ? QPT_RC : in->qp_type;
		break;
	default:
		return EINVAL;
	}
	err = cm_request(c, GOROCE_CREATE_CM_ID, &r, sizeof(r), &made, sizeof(made));
	if (err)
		return err;
	err = made_handle(c, in->response, made.handle, 0);
	if (err)
		return err;
	err = cm_ids_add(cm_ids(c->ch.session),
			 (struct cm_id){ .handle = made.handle, .channel = c->ch.handle, .cookie = in->uid });
	if (err)
		close_handle(c, made.handle, 0, &events);
	return err;
}

/* destroy_id ends an ID, and says how many of its events were taken: rdma_destroy_id waits until so many are
 * acknowledged. Once the daemon has ended the count kept here is told, so that the program does not keep IDs for
 * ever. */
static int destroy_id(struct cm_command *c)
{
	const struct rdma_ucm_destroy_id *in = (void *)c->in;
	struct rdma_ucm_destroy_id_resp resp;
	struct cm_id id;
	int err = close_handle(c, in->id, 0, &resp.events_reported);

	if (err && !cm_ended(c->ch.session))
		return err;
	if (cm_ids_take(cm_ids(c->ch.session), in->id, &id) && err) {
		resp.events_reported = id.events;
		err = 0;
	}
	return err ? err : cm_respond(c, in->response, &resp, sizeof(resp));
}

/* leave ends a membership, whose number has come from a join. The command has the structure of DESTROY_ID. */
static int leave(struct cm_command *c)
{
	const struct rdma_ucm_destroy_id *in = (void *)c->in;
	struct rdma_ucm_destroy_id_resp resp;
	int err = close_handle(c, in->id, 1, &resp.events_reported);

	return err ? err : cm_respond(c, in->response, &resp, sizeof(resp));
}

/* held_here reports whether this machine has an address, as far as its own sockets go. It binds a socket of UDP to
 * find out, to any port. */
static bool held_here(const void *addr)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a;
	bool held;
	int fd;

	memcpy(&a, addr, sizeof(a));
	fd = socket(a.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	a.v4.sin_port = 0; /* IPv6 has it in the same place */
	held = bind(fd, &a.any, a.any.sa_family == AF_INET ? sizeof(a.v4) : sizeof(a.v6)) == 0;
	close(fd);
	return held;
}

/* bind_to binds an ID. Linux looks for the interface of the address first, and for a device on it then: an address of
 * nobody is EADDRNOTAVAIL, one of an interface without a device ENODEV. The daemon knows its devices only. A
 * link-local address without a scope is EINVAL. An ID with an unspecified address is on no device of its own. */
static int bind_to(struct cm_command *c, uint32_t id, const void *addr)
{
	struct goroce_cm_bind r = { .id = id };
	int err;

	if (!cm_addr_in(addr, &r.addr) || (cm_addr_link_local(&r.addr) && !r.addr.scope))
		return EINVAL;
	err = cm_request_id(c, GOROCE_BIND, &r, sizeof(r), NULL, 0);
	if (!err && !cm_addr_any(&r.addr))
		cm_ids_change(cm_ids(c->ch.session), id, cm_id_placed, 0);
	/* Not the device's address: the kernel tells whose it may be. */
	if (err == ENODEV && !cm_addr_link_local(&r.addr) && !held_here(addr))
		return EADDRNOTAVAIL;
	return err;
}

/* bind_ip and bind_any differ in the room for the address. librdmacm writes the second one only where addresses of
 * AF_IB work, which they do not here; other programs may. So it is with resolve_ip and resolve_addr. */
static int bind_ip(struct cm_command *c)
{
	const struct rdma_ucm_bind_ip *in = (void *)c->in;

	return bind_to(c, in->id, &in->addr);
}

/* fits reports whether an address has the size that its family has. Other families are none here. librdmacm binds an
 * ID to an address of AF_IB at its beginning to learn whether that is possible, and does without when it fails. */
static bool fits(const void *addr, uint16_t size)
{
	struct goroce_cm_addr a;

	return cm_addr_in(addr, &a) && size == (a.family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
}

static int bind_any(struct cm_command *c)
{
	const struct rdma_ucm_bind *in = (void *)c->in;

	if (in->reserved || !fits(&in->addr, in->addr_size))
		return EINVAL;
	return bind_to(c, in->id, &in->addr);
}

/* resolve resolves an address; from has family 0 if there is none. What comes of it is told by an event. */
static int resolve(struct cm_command *c, uint32_t id, uint32_t timeout_ms, const void *from, const void *to)
{
	struct goroce_cm_resolve r = { .id = id, .timeout_ns = timeout_ms * INT64_C(1000000) };
	sa_family_t family;

	memcpy(&family, from, sizeof(family));
	if ((family && !cm_addr_in(from, &r.local)) || !cm_addr_in(to, &r.remote))
		return EINVAL;
	return cm_request_id(c, GOROCE_RESOLVE_ADDRESS, &r, sizeof(r), NULL, 0);
}

static int resolve_ip(struct cm_command *c)
{
	const struct rdma_ucm_resolve_ip *in = (void *)c->in;

	return resolve(c, in->id, in->timeout_ms, &in->src_addr, &in->dst_addr);
}

static int resolve_addr(struct cm_command *c)
{
	static const struct sockaddr_in6 none;
	const struct rdma_ucm_resolve_addr *in = (void *)c->in;

	if (in->reserved || (in->src_size && !fits(&in->src_addr, in->src_size)) || !fits(&in->dst_addr, in->dst_size))
		return EINVAL;
	return resolve(c, in->id, in->timeout_ms, in->src_size ? (const void *)&in->src_addr : &none, &in->dst_addr);
}

static int resolve_route(struct cm_command *c)
{
	const struct rdma_ucm_resolve_route *in = (void *)c->in;
	struct goroce_cm_resolve r = { .id = in->id, .timeout_ns = in->timeout_ms * INT64_C(1000000) };

	return cm_request_id(c, GOROCE_RESOLVE_ROUTE, &r, sizeof(r), NULL, 0);
}

/* param converts the parameters of a connection. How much private data there may be depends on the message and the
 * port space, which the daemon checks; flow control is not of RoCE. */
static int param(const struct rdma_ucm_conn_param *from, struct goroce_cm_connect *to)
{
	if (from->private_data_len > sizeof(to->private_data))
		return EINVAL;
	memcpy(to->private_data, from->private_data, from->private_data_len);
	to->param = (struct goroce_cm_param){
		.qpn = from->qp_num,
		.qkey = from->qkey,
		.srq = from->srq != 0,
		.responder_resources = from->responder_resources,
		.initiator_depth = from->initiator_depth,
		.retry_count = from->retry_count,
		.rnr_retry = from->rnr_retry_count,
		.private_len = from->private_data_len,
	};
	return 0;
}

/* connect_to asks the peer for a connection. Without valid parameters it is EINVAL, as in ucma.c; accept has a use
 * for them. */
static int connect_to(struct cm_command *c)
{
	const struct rdma_ucm_connect *in = (void *)c->in;
	struct goroce_cm_connect r = { .id = in->id };

	if (!in->conn_param.valid || param(&in->conn_param, &r))
		return EINVAL;
	return cm_request_id(c, GOROCE_CONNECT, &r, sizeof(r), NULL, 0);
}

/* listen_on: librdmacm passes an int on, so a negative backlog is a number above INT32_MAX here. */
static int listen_on(struct cm_command *c)
{
	const struct rdma_ucm_listen *in = (void *)c->in;
	struct goroce_cm_listen r = { .id = in->id, .backlog = in->backlog };

	if (in->backlog > INT32_MAX)
		r.backlog = 0; /* as many as the user may have */
	return cm_request_id(c, GOROCE_LISTEN, &r, sizeof(r), NULL, 0);
}

/* accept_or_establish accepts a request; without parameters, it sends the RTU that answers the peer's REP (librdmacm
 * does so when it has changed the state of the QP itself). With the request the ID gets its cookie: events before
 * that were not for the program, which did not know the ID yet. */
static int accept_or_establish(struct cm_command *c)
{
	const struct rdma_ucm_accept *in = (void *)c->in;
	struct goroce_cm_connect r = { .id = in->id, .cookie = in->uid };
	struct goroce_object id = { .handle = in->id };
	int err;

	if (!in->conn_param.valid)
		return cm_request_id(c, GOROCE_ESTABLISH, &id, sizeof(id), NULL, 0);
	if (param(&in->conn_param, &r))
		return EINVAL;
	err = cm_request_id(c, GOROCE_ACCEPT, &r, sizeof(r), NULL, 0);
	if (!err && in->uid)
		cm_ids_change(cm_ids(c->ch.session), in->id, cm_id_named, in->uid);
	return err;
}

/* reject refuses a request. Older programs have a reserved field in place of the reason, which is 0. */
static int reject(struct cm_command *c)
{
	const struct rdma_ucm_reject *in = (void *)c->in;
	struct goroce_cm_reject r = { .id = in->id, .reason = in->reason, .private_len = in->private_data_len };

	if (!r.reason)
		r.reason = REJ_CONSUMER;
	if ((r.reason != REJ_CONSUMER && r.reason != REJ_VENDOR_OPTION) || r.private_len > sizeof(r.private_data))
		return EINVAL;
	memcpy(r.private_data, in->private_data, r.private_len);
	return cm_request_id(c, GOROCE_REJECT, &r, sizeof(r), NULL, 0);
}

/* disconnect sends a DREQ, or the reply to one of the peer's. */
static int disconnect(struct cm_command *c)
{
	const struct rdma_ucm_disconnect *in = (void *)c->in;
	struct goroce_object r = { .handle = in->id };

	return cm_request_id(c, GOROCE_DISCONNECT, &r, sizeof(r), NULL, 0);
}

/* init_qp_attr returns the attributes for a change of the QP's state, which librdmacm then makes by ibv_modify_qp. */
static int init_qp_attr(struct cm_command *c)
{
	const struct rdma_ucm_init_qp_attr *in = (void *)c->in;
	struct goroce_cm_value r = { .id = in->id, .which = in->qp_state };
	struct ib_uverbs_qp_attr resp;
	struct goroce_qp_attr attr;
	int err;

	if (in->qp_state > QPS_ERR)
		return EINVAL;
	err = cm_request_id(c, GOROCE_INIT_QP_ATTR, &r, sizeof(r), &attr, sizeof(attr));
	if (err)
		return err;
	cm_qp_attr_out(&attr, &resp);
	return cm_respond(c, in->response, &resp, sizeof(resp));
}

/* set_value sets an option of the daemon's, of which those of RDMA_OPTION_ID are some. */
static int set_value(struct cm_command *c, uint32_t id, uint32_t which, int64_t value)
{
	struct goroce_cm_value r = { .id = id, .which = which, .value = value };

	return cm_request_id(c, GOROCE_SET_OPTION, &r, sizeof(r), NULL, 0);
}

/* set_id_option sets an option of RDMA_OPTION_ID, whose numbers the daemon has. Lengths must be exact, as in ucma.c:
 * a byte or an int, by the option. An ACK timeout has 5 bits. */
static int set_id_option(struct cm_command *c)
{
	const struct rdma_ucm_set_option *in = (void *)c->in;
	uint8_t byte = 0;
	int word = 0, err;

	switch (in->optname) {
	case RDMA_OPTION_ID_TOS:
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (in->optlen != sizeof(byte))
			return EINVAL;
		err = cm_copy_in(&byte, in->optval, sizeof(byte));
		if (!err && in->optname == RDMA_OPTION_ID_ACK_TIMEOUT && byte > MAX_ACK_TIMEOUT)
			err = EINVAL;
		return err ? err : set_value(c, in->id, in->optname, byte);
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		if (in->optlen != sizeof(word))
			return EINVAL;
		err = cm_copy_in(&word, in->optval, sizeof(word));
		return err ? err : set_value(c, in->id, in->optname, word != 0);
	}
	return ENOSYS;
}

/*
 * take_path resolves the route of an ID as a path record of the subnet administration has it (IBTA 15.2.5.16). The
 * addresses are the ID's; RoCE has the traffic class and the MTU, too. An MTU of 0 leaves the one of the route. Then
 * the ID is as if its route had been resolved, and the program gets the event of that.
 */
static int take_path(struct cm_command *c, uint32_t id, const uint8_t record[64])
{
	struct goroce_cm_resolve r = { .id = id };
	uint8_t mtu = record[54] & 0x3F;
	int err = set_value(c, id, RDMA_OPTION_ID_TOS, record[48]);

	if (!err && mtu)
		err = set_value(c, id, OPTION_PATH_MTU, mtu <= MTU_4096 ? 128 << mtu : 0);
	return err ? err : cm_request_id(c, GOROCE_RESOLVE_ROUTE, &r, sizeof(r), NULL, 0);
}

/* set_path takes the route that the program has found, from a list of path records: the first that is the primary
 * path, for both directions and for the connection manager's messages, as in ucma.c. */
static int set_path(struct cm_command *c)
{
	const struct rdma_ucm_set_option *in = (void *)c->in;
	const uint32_t needed = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	struct ib_path_rec_data path = { 0 };

	if (in->optlen % sizeof(path))
		return EINVAL;
	for (uint32_t at = 0; at < in->optlen; at += sizeof(path)) {
		int err = cm_copy_in(&path, in->optval + at, sizeof(path));
		if (err)
			return err;
		if (path.flags == needed)
			return take_path(c, in->id, (const uint8_t *)path.path_rec);
	}
	return EINVAL;
}

/* set_option: ENOSYS for levels and options that are unknown, as in ucma.c. No option is as long as 4096 bytes. */
static int set_option(struct cm_command *c)
{
	const struct rdma_ucm_set_option *in = (void *)c->in;

	if (in->optlen > 4096)
		return EINVAL;
	if (in->level == RDMA_OPTION_ID)
		return set_id_option(c);
	if (in->level == RDMA_OPTION_IB && in->optname == RDMA_OPTION_IB_PATH)
		return set_path(c);
	return ENOSYS;
}

/* notify tells the connection manager of an event of the QP: after IBV_EVENT_COMM_EST it takes the connection for
 * established. */
static int notify(struct cm_command *c)
{
	const struct rdma_ucm_notify *in = (void *)c->in;
	struct goroce_cm_value r = { .id = in->id, .which = in->event };

	return cm_request_id(c, GOROCE_NOTIFY, &r, sizeof(r), NULL, 0);
}

/* join asks for membership in a group. The event of it has the cookie of the membership, whose number the program is
 * told. */
static int join(struct cm_command *c, uint32_t id, const void *addr, uint64_t cookie, uint64_t response)
{
	struct goroce_cm_bind r = { .id = id, .cookie = cookie };
	struct goroce_object made;
	int err;

	if (!cm_addr_in(addr, &r.addr))
		return EINVAL;
	err = cm_request_id(c, GOROCE_JOIN, &r, sizeof(r), &made, sizeof(made));
	if (err)
		return err;
	return made_handle(c, response, made.handle, 1);
}

static int join_ip(struct cm_command *c)
{
	const struct rdma_ucm_join_ip_mcast *in = (void *)c->in;

	return join(c, in->id, &in->addr, in->uid, in->response);
}

static int join_any(struct cm_command *c)
{
	const struct rdma_ucm_join_mcast *in = (void *)c->in;

	if (in->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED || !fits(&in->addr, in->addr_size))
		return EINVAL;
	return join(c, in->id, &in->addr, in->uid, in->response);
}

/* migrate moves an ID from the channel that the command names to the one that it is written to, with its events. It
 * says how many were taken before: rdma_migrate_id waits until these are acknowledged. If none is left on the old
 * channel, that must not be readable any more. */
static int migrate(struct cm_command *c)
{
	const struct rdma_ucm_migrate_id *in = (void *)c->in;
	struct goroce_cm_value r = { .id = in->id, .value = c->ch.handle };
	struct rdma_ucm_migrate_resp resp;
	struct goroce_cm_scope scope = { 0 };
	struct goroce_close_reply moved;
	struct cm_channel from;
	int err;

	if (fcntl((int)in->fd, F_GETFD) < 0)
		return ENOENT;
	if (cm_find((int)in->fd, &from) || from.session != c->ch.session) /* handles are numbers of one connection */
		return EINVAL;
	scope.channel = from.handle;
	err = scoped(c, scope, GOROCE_MIGRATE, &r, sizeof(r), &moved, sizeof(moved));
	if (err)
		return err;
	cm_drain(from.fd, moved.signals);
	cm_ids_change(cm_ids(c->ch.session), in->id, cm_id_moved, c->ch.handle);
	resp.events_reported = moved.events;
	return cm_respond(c, in->response, &resp, sizeof(resp));
}

/* Lengths of structures, which have grown: BEFORE is that without the fields which only newer programs have, WHOLE
 * that of a structure which has always been as long. */
#define BEFORE(type, field) offsetof(struct type, field)
#define WHOLE(type) sizeof(struct type)

/* By the number of the command. GET_OPTION is not in use, in the kernel neither. */
static const struct {
	int (*run)(struct cm_command *c);
	size_t in, out; /* the least length of the command, and room for the response */
} commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = { create_id, WHOLE(rdma_ucm_create_id), WHOLE(rdma_ucm_create_id_resp) },
	[RDMA_USER_CM_CMD_DESTROY_ID] = { destroy_id, WHOLE(rdma_ucm_destroy_id), WHOLE(rdma_ucm_destroy_id_resp) },
	[RDMA_USER_CM_CMD_BIND_IP] = { bind_ip, BEFORE(rdma_ucm_bind_ip, id) + 4, 0 },
	[RDMA_USER_CM_CMD_RESOLVE_IP] = { resolve_ip, WHOLE(rdma_ucm_resolve_ip), 0 },
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = { resolve_route, WHOLE(rdma_ucm_resolve_route), 0 },
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = { cm_query_route, BEFORE(rdma_ucm_query, option),
			BEFORE(rdma_ucm_query_route_resp, ibdev_index) },
	[RDMA_USER_CM_CMD_CONNECT] = { connect_to, BEFORE(rdma_ucm_connect, ece), 0 },
	[RDMA_USER_CM_CMD_LISTEN] = { listen_on, WHOLE(rdma_ucm_listen), 0 },
	[RDMA_USER_CM_CMD_ACCEPT] = { accept_or_establish, BEFORE(rdma_ucm_accept, ece), 0 },
	[RDMA_USER_CM_CMD_REJECT] = { reject, WHOLE(rdma_ucm_reject), 0 },
	[RDMA_USER_CM_CMD_DISCONNECT] = { disconnect, WHOLE(rdma_ucm_disconnect), 0 },
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = { init_qp_attr, WHOLE(rdma_ucm_init_qp_attr), WHOLE(ib_uverbs_qp_attr) },
	[RDMA_USER_CM_CMD_GET_EVENT] = { cm_get_event, WHOLE(rdma_ucm_get_event),
			BEFORE(rdma_ucm_event_resp, reserved) },
	[RDMA_USER_CM_CMD_SET_OPTION] = { set_option, WHOLE(rdma_ucm_set_option), 0 },
	[RDMA_USER_CM_CMD_NOTIFY] = { notify, WHOLE(rdma_ucm_notify), 0 },
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = { join_ip, BEFORE(rdma_ucm_join_ip_mcast, id) + 4,
			WHOLE(rdma_ucm_create_id_resp) },
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = { leave, WHOLE(rdma_ucm_destroy_id), WHOLE(rdma_ucm_destroy_id_resp) },
	[RDMA_USER_CM_CMD_MIGRATE_ID] = { migrate, WHOLE(rdma_ucm_migrate_id), WHOLE(rdma_ucm_migrate_resp) },
	[RDMA_USER_CM_CMD_QUERY] = { cm_query, WHOLE(rdma_ucm_query), BEFORE(rdma_ucm_query_path_resp, path_data) },
	[RDMA_USER_CM_CMD_BIND] = { bind_any, WHOLE(rdma_ucm_bind), 0 },
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = { resolve_addr, WHOLE(rdma_ucm_resolve_addr), 0 },
	[RDMA_USER_CM_CMD_JOIN_MCAST] = { join_any, WHOLE(rdma_ucm_join_mcast), WHOLE(rdma_ucm_create_id_resp) },
};

_Static_assert(WHOLE(rdma_ucm_accept) <= CM_MAX_COMMAND && WHOLE(rdma_ucm_resolve_addr) <= CM_MAX_COMMAND,
	       "no command is longer");

/* cm_run runs a command, and returns its errno. The checks and their order are those of ucma_write and of the
 * functions that it calls: an unknown command is EINVAL, one that has no function ENOSYS, too little room for the
 * response ENOSPC. What newer programs have behind the structure is not looked at. */
int cm_run(int fd, const void *buf, size_t len)
{
	struct rdma_ucm_cmd_hdr h;
	struct cm_command c;
	int err;

	err = cm_find(fd, &c.ch);
	if (err)
		return err;
	if (len < sizeof(h))
		return EINVAL;
	err = cm_copy_in(&h, (uintptr_t)buf, sizeof(h));
	if (err)
		return err;
	if (h.cmd >= sizeof(commands) / sizeof(*commands) || h.in > len - sizeof(h))
		return EINVAL;
	if (!commands[h.cmd].run)
		return ENOSYS;
	if (h.in < commands[h.cmd].in)
		return EINVAL;
	if (h.out < commands[h.cmd].out)
		return ENOSPC;
	memset(c.in, 0, sizeof(c.in));
	c.out = h.out;
	err = cm_copy_in(c.in, (uintptr_t)buf + sizeof(h), h.in < sizeof(c.in) ? h.in : sizeof(c.in));
	return err ? err : commands[h.cmd].run(&c);
}
