/*
 * One end of a connection by librdmacm that goes as far as a state, and waits there for events: cm_states server|client
 * ADDR STATE. It says each state and each event that it gets.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

static struct rdma_event_channel *channel;
static const char *last;

/* reached says that a state is reached, and reports whether the program goes on. */
static bool reached(const char *state)
{
	printf("state %s\n", state);
	return strcmp(state, last) != 0;
}

/* watch says events for ever. */
static _Noreturn void watch(void)
{
	struct rdma_cm_event *e;

	for (;;) {
		MUST(rdma_get_cm_event(channel, &e) == 0);
		printf("event %s\n", rdma_event_str(e->event));
		MUST(rdma_ack_cm_event(e) == 0);
	}
}

/* next waits for an event, which must be this one, and returns its ID. */
static struct rdma_cm_id *next(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	MUST(rdma_get_cm_event(channel, &e) == 0);
	printf("event %s\n", rdma_event_str(e->event));
	MUST(e->event == type);
	id = e->id;
	MUST(rdma_ack_cm_event(e) == 0);
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	static char memory[4096];

	MUST(rdma_create_qp(id, NULL, &attr) == 0);
	MUST(rdma_reg_msgs(id, memory, sizeof(memory)));
}

static void connected(struct rdma_cm_id *id)
{
	if (!reached("established"))
		return;
	MUST(rdma_disconnect(id) == 0);
	if (!reached("disconnecting"))
		return;
	next(RDMA_CM_EVENT_DISCONNECTED);
	reached("timewait");
}

static void serve(struct rdma_cm_id *listener)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *id;

	if (!reached("bound"))
		return;
	MUST(rdma_listen(listener, 4) == 0);
	if (!reached("listening"))
		return;
	id = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!reached("requested"))
		return;
	create_qp(id);
	MUST(rdma_accept(id, &param) == 0);
	if (!reached("accepted"))
		return;
	next(RDMA_CM_EVENT_ESTABLISHED);
	connected(id);
}

static void call(struct rdma_cm_id *id, struct sockaddr_in *to)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };

	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 2000) == 0);
	next(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (!reached("address"))
		return;
	MUST(rdma_resolve_route(id, 2000) == 0);
	next(RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (!reached("route"))
		return;
	create_qp(id);
	MUST(rdma_connect(id, &param) == 0);
	if (!reached("connecting"))
		return;
	next(RDMA_CM_EVENT_ESTABLISHED);
	connected(id);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct rdma_cm_id *id;

	MUST(argc == 4 && inet_pton(AF_INET, argv[2], &addr.sin_addr) == 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	last = argv[3];
	MUST(channel = rdma_create_event_channel());
	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	if (strcmp(argv[1], "server") == 0) {
		MUST(rdma_bind_addr(id, (struct sockaddr *)&addr) == 0);
		serve(id);
	} else {
		call(id, &addr);
	}
	watch();
}
