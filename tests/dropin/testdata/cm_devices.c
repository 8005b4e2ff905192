/*
 * On which device IDs are, where there are two: cm_devices NAME ADDR NAME ADDR prints a line for each rule. The golden
 * file beside it is what it prints over two devices of rdma_rxe.
 */
#include "cm_rules.h"

#include <rdma/rdma_verbs.h>

static const struct place {
	const char *device, *addr;
} * places; /* of both devices */

static const char *words[] = { "first", "second", "other" };

/* on returns on which device an ID is. */
static const char *on(const struct rdma_cm_id *id)
{
	if (!id->verbs)
		return "none";
	for (int i = 0; i < 2; i++)
		if (strcmp(ibv_get_device_name(id->verbs->device), places[i].device) == 0)
			return words[i];
	return words[2];
}

/* local returns which device has an ID's address. */
static const char *local(struct rdma_cm_id *id)
{
	char text[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr, text, sizeof(text));
	for (int i = 0; i < 2; i++)
		if (strcmp(text, places[i].addr) == 0)
			return words[i];
	return words[2];
}

static void binds(const char *what, const char *addr)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	const char *said = result(bind_to(id, addr, 0));

	printf("bind %s: %s, device %s\n", what, said, on(id));
	end(id);
}

/* resolving has an ID resolve an address, from one of this machine's if from is not NULL. */
static struct rdma_cm_id *resolving(const char *from, const char *to)
{
	union address src = { 0 }, dst = address(to, PORT);
	struct rdma_cm_id *id = make(RDMA_PS_TCP);

	if (from)
		src = address(from, 0);
	MUST(rdma_resolve_addr(id, from ? &src.any : NULL, &dst.any, 2000) == 0);
	return id;
}

static void resolves(int from, int to)
{
	struct rdma_cm_id *id = resolving(from < 0 ? NULL : places[from].addr, places[to].addr);
	const char *said = text(next(id));

	printf("resolve %s from %s: %s, device %s, local %s, port %d\n", words[to],
	       from < 0 ? "anywhere" : words[from], said, on(id), local(id), id->port_num);
	end(id);
}

static struct rdma_cm_id *bound(const char *addr)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);

	MUST(bind_to(id, addr, PORT) == 0);
	return id;
}

static void one_port(const char *what, const char *a, const char *b)
{
	struct rdma_cm_id *first = bound(a), *second = make(RDMA_PS_TCP);

	printf("one port, %s: %s\n", what, result(bind_to(second, b, PORT)));
	end(first);
	end(second);
}

/* An ID that is bound to all addresses gets one, and leaves the port of the other device to others. */
static void narrows(void)
{
	union address dst = address(places[1].addr, PORT);
	struct rdma_cm_id *id = bound("0.0.0.0"), *other = make(RDMA_PS_TCP);

	MUST(rdma_resolve_addr(id, NULL, &dst.any, 2000) == 0);
	MUST(next(id).type == RDMA_CM_EVENT_ADDR_RESOLVED);
	printf("resolve second, bound to 0.0.0.0: device %s, local %s, its port at the first %s\n", on(id), local(id),
	       result(bind_to(other, places[0].addr, PORT)));
	end(other);
	end(id);
}

static char received[4];

/* posted registers memory of an ID's device for a message, and posts a receive for the passive end. */
static struct ibv_mr *posted(struct rdma_cm_id *id, char *buf, bool receive)
{
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(received));

	MUST(mr);
	if (receive)
		MUST(rdma_post_recv(id, NULL, buf, sizeof(received), mr) == 0);
	return mr;
}

static const char *arrives(struct rdma_cm_id *active, struct rdma_cm_id *passive)
{
	struct ibv_wc wc;
	char hi[4] = "hi!";
	struct ibv_mr *mr = posted(active, hi, false);

	memset(received, 0, sizeof(received));
	MUST(rdma_post_send(active, NULL, hi, sizeof(hi), mr, IBV_SEND_SIGNALED) == 0);
	MUST(rdma_get_send_comp(active, &wc) == 1);
	if (wc.status != IBV_WC_SUCCESS)
		return ibv_wc_status_str(wc.status);
	MUST(rdma_get_recv_comp(passive, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	MUST(rdma_dereg_mr(mr) == 0);
	return received;
}

/* moves migrates an ID to a channel of its own, where its next event comes. */
static void moves(struct rdma_cm_id *id)
{
	struct rdma_event_channel *to = rdma_create_event_channel();

	MUST(to && rdma_migrate_id(id, to) == 0);
}

static void connects(struct rdma_cm_id *listener, int from, int to)
{
	struct rdma_cm_id *active = resolving(from < 0 ? NULL : places[from].addr, places[to].addr), *passive;
	struct ibv_mr *mr;
	struct seen s;

	MUST(next(active).type == RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(active, 2000) == 0);
	MUST(next(active).type == RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(create_qp(active) == 0 && ask(active, 0) == 0);
	printf("connect to %s from %s: active on %s", words[to], from < 0 ? "anywhere" : words[from], on(active));
	if (listener->verbs && strcmp(on(listener), words[to]) != 0) {
		printf(", %s\n", text(next(active)));
		end(active);
		return;
	}
	s = next(listener);
	MUST(s.type == RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = s.id;
	MUST(create_qp(passive) == 0);
	mr = posted(passive, received, true);
	MUST(answer(passive, 0) == 0);
	MUST(next(active).type == RDMA_CM_EVENT_ESTABLISHED);
	MUST(next(listener).type == RDMA_CM_EVENT_ESTABLISHED);
	printf(", passive on %s, local %s, sent \"%s\"", on(passive), local(passive), arrives(active, passive));
	moves(passive);
	MUST(rdma_disconnect(active) == 0);
	printf(", on another channel %s\n", text(next(passive)));
	rdma_disconnect(passive);
	MUST(rdma_dereg_mr(mr) == 0);
	end(active);
	end(passive);
}

static struct rdma_cm_id *listens(const char *addr)
{
	struct rdma_cm_id *id = bound(addr);

	MUST(rdma_listen(id, 4) == 0);
	printf("listen at %s: device %s\n", id->verbs ? on(id) : addr, on(id));
	return id;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *l;

	MUST(argc == 5 || argc == 6); /* the sixth: also from one device to the other */
	places = (struct place *)(argv + 1);
	device4 = places[0].addr;
	device6 = "::";
	binds("first", places[0].addr);
	binds("second", places[1].addr);
	binds("0.0.0.0", "0.0.0.0");
	binds("192.0.2.1", "192.0.2.1");
	resolves(-1, 0);
	resolves(-1, 1);
	resolves(0, 1);
	resolves(1, 0);
	narrows();
	one_port("first and second", places[0].addr, places[1].addr);
	one_port("second and second", places[1].addr, places[1].addr);
	one_port("second and 0.0.0.0", places[1].addr, "0.0.0.0");
	one_port("0.0.0.0 and first", "0.0.0.0", places[0].addr);
	l = listens("0.0.0.0");
	connects(l, -1, 0);
	connects(l, -1, 1);
	if (argc == 6) {
		connects(l, 0, 1);
		connects(l, 1, 0);
	}
	moves(l);
	connects(l, 1, 1);
	end(l);
	l = listens(places[1].addr);
	connects(l, -1, 1);
	connects(l, -1, 0);
	end(l);
	return 0;
}
