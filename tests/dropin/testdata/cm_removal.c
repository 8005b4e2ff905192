/*
 * What a program of rdma_cm sees when its daemon ends: cm_removal ADDR. It says "ready" when its IDs are in their states,
 * then each event that comes, sorted, and what comes after them. When there is another daemon, it uses that.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "must.h"

enum { PORT = 7471, IDS = 8 };

static struct rdma_event_channel *passive, *active;
static struct sockaddr_in addr = { .sin_family = AF_INET };

static struct rdma_cm_id *make(struct rdma_event_channel *ch, const char *name)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(ch, &id, (void *)name, RDMA_PS_TCP) == 0);
	return id;
}

/* next takes an event, which must be of this type, and returns its ID. */
static struct rdma_cm_id *next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	MUST(rdma_get_cm_event(ch, &e) == 0);
	MUST(e->event == type);
	id = e->id;
	MUST(rdma_ack_cm_event(e) == 0);
	return id;
}

static void listen_at(struct rdma_cm_id *id, in_addr_t at, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = at };

	MUST(rdma_bind_addr(id, (struct sockaddr *)&to) == 0);
	MUST(rdma_listen(id, 4) == 0);
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	MUST(rdma_create_qp(id, NULL, &attr) == 0);
}

/* request asks for a connection, and returns the other end's ID. */
static struct rdma_cm_id *request(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };

	addr.sin_port = htons(PORT);
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	next(active, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000) == 0);
	next(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(id);
	MUST(rdma_connect(id, &param) == 0);
	return next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
}

static struct rdma_cm_id *answer(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };

	id->context = "accepted";
	create_qp(id);
	MUST(rdma_accept(id, &param) == 0);
	next(active, RDMA_CM_EVENT_ESTABLISHED);
	next(passive, RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* removals takes the events of a channel until there is an error, and prints which IDs are without a device. */
static void removals(struct rdma_event_channel *ch, const char *name)
{
	const char *of[IDS];
	struct rdma_cm_event *e;
	int n = 0;

	while (rdma_get_cm_event(ch, &e) == 0) {
		MUST(e->event == RDMA_CM_EVENT_DEVICE_REMOVAL && e->status == 0 && n < IDS);
		of[n++] = e->id->context;
		MUST(rdma_ack_cm_event(e) == 0);
	}
	IS(EIO, errno);
	qsort(of, n, sizeof(*of), by_name);
	printf("%s:", name);
	for (int i = 0; i < n; i++)
		printf(" %s", of[i]);
	printf("\n");
}

/* afterwards: a channel is quiet, and calls fail. */
static void afterwards(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN | POLLOUT };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	FAILS(EIO, rdma_get_cm_event(ch, &e) == 0);
	MUST(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	FAILS(EIO, rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
}

/* handle_of returns the daemon's handle of a channel: the second number in the name of its socket. */
static unsigned int handle_of(const struct rdma_event_channel *ch)
{
	struct sockaddr_un name = { 0 };
	socklen_t len = sizeof(name);
	unsigned int handle;

	MUST(getsockname(ch->fd, (struct sockaddr *)&name, &len) == 0);
	MUST(sscanf(name.sun_path + 1, "goroce-cm/%*16x/%8x", &handle) == 1);
	return handle;
}

/* another opens channels of another daemon. Their IDs cannot be moved from a channel of the former one. */
static void another(void)
{
	struct rdma_event_channel *first, *second;
	struct rdma_cm_id *id;

	while (!(first = rdma_create_event_channel()))
		usleep(1000);
	while (handle_of(first) < handle_of(passive)) {
		rdma_destroy_event_channel(first);
		MUST(first = rdma_create_event_channel());
	}
	IS((int)handle_of(passive), (int)handle_of(first));
	MUST(second = rdma_create_event_channel());
	id = make(first, "another");
	id->channel = passive; /* of the former daemon */
	FAILS(EINVAL, rdma_migrate_id(id, second) == 0);
	id->channel = first;
	MUST(rdma_migrate_id(id, second) == 0);
	MUST(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(second);
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *ids[IDS];
	struct pollfd p;

	MUST(argc == 2 && inet_pton(AF_INET, argv[1], &addr.sin_addr) == 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST((passive = rdma_create_event_channel()) && (active = rdma_create_event_channel()));
	listen_at(ids[0] = make(passive, "listener"), addr.sin_addr.s_addr, PORT);
	listen_at(ids[1] = make(passive, "wildcard"), INADDR_ANY, PORT + 1);
	ids[2] = make(passive, "idle");
	ids[3] = make(active, "connected");
	ids[4] = answer(request(ids[3]));
	ids[5] = make(active, "connecting");
	ids[6] = request(ids[5]);
	ids[7] = make(active, "migrated");
	MUST(rdma_resolve_addr(ids[7], NULL, (struct sockaddr *)&addr, 2000) == 0);
	next(active, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_migrate_id(ids[7], passive) == 0);
	printf("ready\n");

	removals(passive, "passive");
	p = (struct pollfd){ .fd = active->fd, .events = POLLIN };
	MUST(poll(&p, 1, -1) == 1);
	removals(active, "active");
	afterwards(passive);
	afterwards(active);
	FAILS(EIO, rdma_listen(ids[2], 1) == 0);
	for (int i = 0; i < IDS; i++) {
		if (ids[i]->qp)
			rdma_destroy_qp(ids[i]);
		MUST(rdma_destroy_id(ids[i]) == 0);
	}
	printf("destroyed\n");
	another();
	rdma_destroy_event_channel(passive);
	rdma_destroy_event_channel(active);
	printf("another daemon\n");
	return 0;
}
