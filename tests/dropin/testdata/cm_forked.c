/*
 * A process that has used librdmacm forks: cm_forked ADDR. librdmacm keeps one context for each device, so the IDs that
 * the child makes have the one that it has inherited. The child connects to its parent, and then the parent to itself.
 */
#include "verbs_common.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum { PORT = 7472 };

static struct sockaddr_in addr = {.sin_family = AF_INET};

/* next takes an event, which must be of this type, and returns its ID. */
static struct rdma_cm_id *next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	MUST(poll(&p, 1, 10000) == 1);
	IS(0, rdma_get_cm_event(ch, &e));
	IS((int)type, (int)e->event);
	id = e->id;
	IS(0, rdma_ack_cm_event(e));
	return id;
}

/* give_qp makes all that a connection needs, anew. */
static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};

	MUST(pd = ibv_alloc_pd(id->verbs));
	MUST(a.send_cq = a.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0));
	IS(0, rdma_create_qp(id, pd, &a));
}

static struct rdma_cm_id *start(struct rdma_event_channel *ch)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *id;

	IS(0, rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	IS(0, rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000));
	next(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	IS(0, rdma_resolve_route(id, 2000));
	next(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(id);
	IS(0, rdma_connect(id, &param));
	return id;
}

static void accept_next(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id = next(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = {.retry_count = 7};

	give_qp(id);
	IS(0, rdma_accept(id, &param));
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	IS(0, rdma_destroy_id(id));
}

/* in_child connects by a channel of its own, and ends the connection in order. */
static void in_child(const struct rdma_cm_id *listener)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	MUST(ch);
	id = start(ch);
	MUST(id->verbs == listener->verbs);
	next(ch, RDMA_CM_EVENT_ESTABLISHED);
	IS(0, rdma_disconnect(id));
	end(next(ch, RDMA_CM_EVENT_DISCONNECTED));
	exit(0);
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;
	pid_t child;
	int status;

	MUST(argc == 2 && passive && active && inet_pton(AF_INET, argv[1], &addr.sin_addr) == 1);
	addr.sin_port = htons(PORT);
	IS(0, rdma_create_id(passive, &listener, NULL, RDMA_PS_TCP));
	IS(0, rdma_bind_addr(listener, (struct sockaddr *)&addr));
	IS(0, rdma_listen(listener, 8));
	MUST((child = fork()) >= 0);
	if (!child)
		in_child(listener);
	accept_next(passive);
	next(passive, RDMA_CM_EVENT_ESTABLISHED);
	id = next(passive, RDMA_CM_EVENT_DISCONNECTED);
	IS(0, rdma_disconnect(id));
	end(id);
	MUST(waitpid(child, &status, 0) == child);
	IS(0, status);
	start(active);
	accept_next(passive);
	next(active, RDMA_CM_EVENT_ESTABLISHED);
	next(passive, RDMA_CM_EVENT_ESTABLISHED);
	return 0;
}
