/* What the rules of cm_rules.c and cm_devices.c are made of: IDs with channels of their own, events as text, a connection. */
#ifndef CM_RULES_H
#define CM_RULES_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

enum { PORT = 7471, PATIENCE_MS = 30000 };

static const char *device4, *device6; /* the device's addresses */

/* result returns the name of a call's errno. */
static const char *result(int ret)
{
	return ret ? strerrorname_np(errno) : "ok";
}

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static union address address(const char *text, int port)
{
	union address a = { 0 };

	if (strchr(text, ':')) {
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = htons(port);
		MUST(inet_pton(AF_INET6, text, &a.v6.sin6_addr) == 1);
	} else {
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = htons(port);
		MUST(inet_pton(AF_INET, text, &a.v4.sin_addr) == 1);
	}
	return a;
}

/* named returns an address, the device's by a name that does not depend on the machine. */
static inline const char *named(const struct sockaddr *a)
{
	static char text[INET6_ADDRSTRLEN];

	if (a->sa_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)a)->sin_addr, text, sizeof(text));
	else if (a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)a)->sin6_addr, text, sizeof(text));
	else
		return "none";
	if (strncmp(text, "fe80:", 5) == 0)
		return "LINKLOCAL";
	if (strcmp(text, device4) == 0)
		return "DEVICE4";
	return strcmp(text, device6) == 0 ? "DEVICE6" : text;
}

/* make creates an ID on a channel of its own. */
static struct rdma_cm_id *make(enum rdma_port_space space)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	MUST(channel);
	MUST(rdma_create_id(channel, &id, NULL, space) == 0);
	return id;
}

/* end destroys an ID, its QP, and the channel that make has created. */
static void end(struct rdma_cm_id *id)
{
	struct rdma_event_channel *channel = id->channel;

	if (id->qp)
		rdma_destroy_qp(id);
	MUST(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static int bind_to(struct rdma_cm_id *id, const char *text, int port)
{
	union address a = address(text, port);

	return rdma_bind_addr(id, &a.any);
}

/* An event, after it was acknowledged. */
struct seen {
	int type; /* -1: none came */
	int status;
	struct rdma_cm_id *id;
	struct rdma_conn_param conn;
	struct rdma_ud_param ud;
	unsigned char data[256];
	unsigned len;
};

/* readable waits for an event of an ID's channel, and leaves it there. */
static bool readable(struct rdma_cm_id *id, int timeout_ms)
{
	struct pollfd p = { .fd = id->channel->fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

static struct seen next(struct rdma_cm_id *id)
{
	struct seen s = { .type = -1 };
	struct rdma_cm_event *e;
	const void *data;

	if (!readable(id, PATIENCE_MS))
		return s;
	MUST(rdma_get_cm_event(id->channel, &e) == 0);
	s.type = e->event;
	s.status = e->status;
	s.id = e->id;
	s.conn = e->param.conn;
	s.ud = e->param.ud;
	data = e->id->qp_type == IBV_QPT_UD ? e->param.ud.private_data : e->param.conn.private_data;
	s.len = e->id->qp_type == IBV_QPT_UD ? e->param.ud.private_data_len : e->param.conn.private_data_len;
	if (data)
		memcpy(s.data, data, s.len);
	MUST(rdma_ack_cm_event(e) == 0);
	return s;
}

/* text returns an event's name without its prefix, and its status. */
static const char *text(struct seen s)
{
	static char out[80];

	if (s.type < 0)
		return "no event";
	snprintf(out, sizeof(out), "%s status %d", rdma_event_str(s.type) + strlen("RDMA_CM_EVENT_"), s.status);
	return out;
}

static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = id->qp_type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return rdma_create_qp(id, NULL, &attr);
}

static int resolve(struct rdma_cm_id *id, const char *to, int port)
{
	union address a = address(to, port);

	return rdma_resolve_addr(id, NULL, &a.any, 2000);
}

/* routed returns an ID with a route to a port of the device, and a QP. */
static struct rdma_cm_id *routed(enum rdma_port_space space, int port)
{
	struct rdma_cm_id *id = make(space);

	MUST(resolve(id, device4, port) == 0);
	MUST(next(id).type == RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000) == 0);
	MUST(next(id).type == RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(create_qp(id) == 0);
	return id;
}

static struct rdma_cm_id *listening(enum rdma_port_space space, int backlog)
{
	struct rdma_cm_id *id = make(space);

	MUST(bind_to(id, device4, PORT) == 0);
	MUST(rdma_listen(id, backlog) == 0);
	return id;
}

/* with returns parameters with private data of a length. */
static struct rdma_conn_param with(unsigned len)
{
	static unsigned char data[256];

	memset(data, 0xA5, sizeof(data));
	return (struct rdma_conn_param){ .private_data = data, .private_data_len = len, .responder_resources = 1,
					 .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
}

static int ask(struct rdma_cm_id *id, unsigned len)
{
	struct rdma_conn_param param = with(len);

	return rdma_connect(id, &param);
}

static int answer(struct rdma_cm_id *id, unsigned len)
{
	struct rdma_conn_param param = with(len);

	if (!id->qp)
		MUST(create_qp(id) == 0);
	param.qp_num = id->qp->qp_num;
	return rdma_accept(id, &param);
}

/* Both ends of a connection, and the listener, whose channel the passive end is on. */
struct pair {
	struct rdma_cm_id *listener, *active, *passive;
	struct seen request;
};

/* requested has an active end ask a listener. */
static struct pair requested(enum rdma_port_space space)
{
	struct pair p = { .listener = listening(space, 4), .active = routed(space, PORT) };

	MUST(ask(p.active, 3) == 0);
	p.request = next(p.listener);
	MUST(p.request.type == RDMA_CM_EVENT_CONNECT_REQUEST);
	p.passive = p.request.id;
	return p;
}

static inline struct pair connected(void)
{
	struct pair p = requested(RDMA_PS_TCP);

	MUST(answer(p.passive, 5) == 0);
	MUST(next(p.active).type == RDMA_CM_EVENT_ESTABLISHED);
	MUST(next(p.listener).type == RDMA_CM_EVENT_ESTABLISHED);
	return p;
}

static inline void end_pair(struct pair *p)
{
	if (p->passive->qp)
		rdma_destroy_qp(p->passive);
	MUST(rdma_destroy_id(p->passive) == 0);
	end(p->active);
	end(p->listener);
}

#endif
