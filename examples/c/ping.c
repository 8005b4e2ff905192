/*
 * ping: verbs in C, with the headers of any libibverbs, and connections by address with librdmacm.
 *
 * The server offers 64 bytes of memory: it tells the client their address and key as the private data of the
 * connection. The client WRITEs a text there, and then SENDs an empty message that says so. The server prints the text.
 *
 *	cc -std=gnu99 -Wall -o ping ping.c -lrdmacm -libverbs     # packages libibverbs-dev and librdmacm-dev
 *	goroced run -- ./ping server &                          # no RDMA NIC, no root: over the daemon of goroce
 *	goroced run -- ./ping client ADDRESS
 *
 * With an RDMA NIC, `./ping server` and `./ping client ADDRESS` do the same.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7471"

/* What the server tells the client, in network byte order. */
struct offer {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
};

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

/* completed ends the program unless the next completion is a success. */
static void completed(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id, const char *what)
{
	struct ibv_wc wc;

	check(get(id, &wc) < 1, what);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

/* endpoint returns an ID with a queue pair, or a listener for such IDs. */
static struct rdma_cm_id *endpoint(const char *host, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };
	struct rdma_cm_id *id;

	check(rdma_getaddrinfo(host, PORT, &hints, &res), "address");
	check(rdma_create_ep(&id, res, NULL, &init), "create an endpoint");
	rdma_freeaddrinfo(res);
	return id;
}

static void server(void)
{
	static char text[64];
	struct rdma_cm_id *listener = endpoint(NULL, RAI_PASSIVE), *id;
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct offer offer;
	struct ibv_mr *mr;

	check(rdma_listen(listener, 1), "listen");
	puts("listening");
	fflush(stdout);
	check(rdma_get_request(listener, &id), "wait for a client");
	mr = rdma_reg_write(id, text, sizeof text);
	check(!mr, "register memory");
	check(rdma_post_recv(id, NULL, text, 0, mr), "post a receive");
	offer.addr = htobe64((uintptr_t)text);
	offer.rkey = htonl(mr->rkey);
	offer.length = htonl(sizeof text);
	param.private_data = &offer;
	param.private_data_len = sizeof offer;
	check(rdma_accept(id, &param), "accept");

	completed(rdma_get_recv_comp, id, "receive");
	printf("the client has written: %.*s\n", (int)sizeof text, text);

	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void client(const char *host)
{
	static char text[] = "hello from C";
	struct rdma_cm_id *id = endpoint(host, 0);
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct offer offer;
	struct ibv_mr *mr = rdma_reg_msgs(id, text, sizeof text);

	check(!mr, "register memory");
	check(rdma_connect(id, &param), "connect");
	errno = EPROTO; /* for the next two checks, which follow no system call */
	check(id->event->param.conn.private_data_len < sizeof offer, "the server tells no address, key and length");
	memcpy(&offer, id->event->param.conn.private_data, sizeof offer);
	check(ntohl(offer.length) < sizeof text, "the server offers less memory than the text needs");

	check(rdma_post_write(id, NULL, text, sizeof text, mr, 0, be64toh(offer.addr), ntohl(offer.rkey)), "post a WRITE");
	completed(rdma_get_send_comp, id, "WRITE");
	check(rdma_post_send(id, NULL, text, 0, mr, 0), "post a SEND");
	completed(rdma_get_send_comp, id, "SEND");

	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "server"))
		server();
	else if (argc == 3 && !strcmp(argv[1], "client"))
		client(argv[2]);
	else {
		fprintf(stderr, "arguments: server, or client ADDRESS\n");
		return 2;
	}
	return 0;
}
