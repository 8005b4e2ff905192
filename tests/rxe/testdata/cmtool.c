/*
 * cmtool does what no tool of librdmacm does: it refuses with private data, prints
 * the private data of a peer that refuses, and connects many times in a row.
 *
 *	cmtool tcp|udp reject PORT TEXT       refuse one request
 *	cmtool tcp|udp dial HOST PORT TEXT    ask once
 *	cmtool tcp churn HOST PORT COUNT      connect and disconnect
 *	cmtool tcp serve PORT COUNT           accept COUNT connections, which the peers disconnect
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

static enum rdma_port_space space;

static int fail(const char *what)
{
	perror(what);
	return 1;
}

/* show prints an event, with its private data without trailing zeros. */
static void show(const struct rdma_cm_event *event)
{
	const char *data = space == RDMA_PS_UDP ? event->param.ud.private_data : event->param.conn.private_data;
	size_t len = space == RDMA_PS_UDP ? event->param.ud.private_data_len : event->param.conn.private_data_len;

	while (data && len > 0 && data[len - 1] == 0)
		len--;
	printf("%s status %d private data \"%.*s\"\n", rdma_event_str(event->event), event->status, data ? (int)len : 0,
		data ? data : "");
}

/* endpoint resolves the address, and if qp is set creates a QP for each connection. */
static struct rdma_cm_id *endpoint(const char *host, const char *port, int qp)
{
	struct rdma_addrinfo hints = { .ai_port_space = space, .ai_flags = host ? 0 : RAI_PASSIVE }, *res;
	struct ibv_qp_init_attr attr = {
		.qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_id *id = NULL;

	if (rdma_getaddrinfo(host, port, &hints, &res))
		return NULL;
	if (rdma_create_ep(&id, res, NULL, qp ? &attr : NULL))
		id = NULL;
	rdma_freeaddrinfo(res);
	return id;
}

static int reject(const char *port, const char *text)
{
	struct rdma_cm_id *listener = endpoint(NULL, port, 0), *id;

	if (!listener || rdma_listen(listener, 0))
		return fail("listen");
	if (rdma_get_request(listener, &id))
		return fail("rdma_get_request");
	show(id->event);
	if (rdma_reject(id, text, strlen(text)))
		return fail("rdma_reject");
	rdma_destroy_id(id);
	rdma_destroy_ep(listener);
	return 0;
}

static int dial(const char *host, const char *port, const char *text)
{
	struct rdma_conn_param param = { .private_data = text, .private_data_len = strlen(text) };
	struct rdma_cm_id *id = endpoint(host, port, 1);
	int refused;

	if (!id)
		return fail("rdma_create_ep");
	refused = rdma_connect(id, &param);
	if (!id->event)
		return fail("rdma_connect");
	show(id->event);
	if (!refused && space == RDMA_PS_TCP && rdma_disconnect(id))
		return fail("rdma_disconnect");
	rdma_destroy_ep(id);
	return 0;
}

static int churn(const char *host, const char *port, int count)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	int i;

	for (i = 0; i < count; i++) {
		struct rdma_cm_id *id = endpoint(host, port, 1);

		if (!id || rdma_connect(id, &param) || rdma_disconnect(id)) {
			fprintf(stderr, "connection %d: ", i);
			return fail("connect");
		}
		rdma_destroy_ep(id);
	}
	printf("%d connections\n", count);
	return 0;
}

static int serve(const char *port, int count)
{
	struct rdma_cm_id *listener = endpoint(NULL, port, 1), *id;
	struct rdma_cm_event *event;
	int i;

	if (!listener || rdma_listen(listener, 0))
		return fail("listen");
	for (i = 0; i < count; i++) {
		if (rdma_get_request(listener, &id) || rdma_accept(id, NULL) || rdma_get_cm_event(id->channel, &event)) {
			fprintf(stderr, "connection %d: ", i);
			return fail("accept");
		}
		if (event->event != RDMA_CM_EVENT_DISCONNECTED) {
			show(event);
			return 1;
		}
		rdma_ack_cm_event(event);
		rdma_destroy_ep(id);
	}
	rdma_destroy_ep(listener);
	printf("%d connections\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 || argc == 6) {
		space = strcmp(argv[1], "udp") ? RDMA_PS_TCP : RDMA_PS_UDP;
		if (argc == 5 && !strcmp(argv[2], "reject"))
			return reject(argv[3], argv[4]);
		if (argc == 5 && !strcmp(argv[2], "serve"))
			return serve(argv[3], atoi(argv[4]));
		if (argc == 6 && !strcmp(argv[2], "dial"))
			return dial(argv[3], argv[4], argv[5]);
		if (argc == 6 && !strcmp(argv[2], "churn"))
			return churn(argv[3], argv[4], atoi(argv[5]));
	}
	fprintf(stderr, "usage: cmtool tcp|udp reject PORT TEXT | dial HOST PORT TEXT | churn HOST PORT COUNT | "
		"serve PORT COUNT\n");
	return 2;
}
