/*
 * A pair of UCX programs that connect by address: ucx_connect server ADDR, which prints "listens", then ucx_connect client
 * ADDR. The client sends a message by tag, the server sends it back, and the client compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

#include "must.h"

enum { PORT = 7471, SIZE = 1 << 20, TAG = 17 };

#define OK(call)                                                                                        \
	do {                                                                                            \
		ucs_status_t status_ = (call);                                                          \
		if (status_ != UCS_OK) {                                                                \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                   \
				ucs_status_string(status_));                                            \
			exit(1);                                                                        \
		}                                                                                       \
	} while (0)

static ucp_worker_h worker;
static bool closed; /* by the peer */

/* await waits for the end of a request; also of one that has ended at once, or was refused. */
static void await(ucs_status_ptr_t request)
{
	ucs_status_t status = UCS_PTR_STATUS(request);

	if (!UCS_PTR_IS_PTR(request)) {
		OK(status);
		return;
	}
	do
		ucp_worker_progress(worker);
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS);
	ucp_request_free(request);
	OK(status);
}

static void send_all(ucp_ep_h ep, const void *data)
{
	ucp_request_param_t param = { 0 };

	await(ucp_tag_send_nbx(ep, data, SIZE, TAG, &param));
}

static void receive_all(void *data)
{
	ucp_request_param_t param = { 0 };

	await(ucp_tag_recv_nbx(worker, data, SIZE, TAG, -1, &param));
}

/* failed: the peer's end is no error for the server. */
static void failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)arg;
	(void)ep;
	if (status != UCS_ERR_CONNECTION_RESET) {
		fprintf(stderr, "the endpoint fails: %s\n", ucs_status_string(status));
		exit(1);
	}
	closed = true;
}

static ucp_ep_h endpoint(ucp_ep_params_t param)
{
	ucp_ep_h ep;

	param.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
	param.err_mode = UCP_ERR_HANDLING_MODE_PEER;
	param.err_handler.cb = failed;
	OK(ucp_ep_create(worker, &param, &ep));
	return ep;
}

static void requested(ucp_conn_request_h request, void *arg)
{
	*(ucp_conn_request_h *)arg = request;
}

static void serve(ucs_sock_addr_t at)
{
	ucp_conn_request_h request = NULL;
	ucp_listener_params_t param = { .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			UCP_LISTENER_PARAM_FIELD_CONN_HANDLER, .sockaddr = at, .conn_handler = { requested, &request } };
	char *data = malloc(SIZE);
	ucp_listener_h listener;
	ucp_ep_h ep;

	OK(ucp_listener_create(worker, &param, &listener));
	printf("listens\n");
	while (!request)
		ucp_worker_progress(worker);
	ep = endpoint((ucp_ep_params_t){ .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request });
	receive_all(data);
	send_all(ep, data);
	while (!closed)
		ucp_worker_progress(worker);
	free(data);
	ucp_listener_destroy(listener);
}

static void call(ucs_sock_addr_t to)
{
	ucp_ep_h ep = endpoint((ucp_ep_params_t){ .field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS,
			.sockaddr = to, .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER });
	unsigned char *data = malloc(SIZE), *back = calloc(1, SIZE);
	ucp_request_param_t close = { 0 };

	for (int i = 0; i < SIZE; i++)
		data[i] = (unsigned char)(i * 7 + (i >> 8));
	send_all(ep, data);
	receive_all(back);
	MUST(memcmp(data, back, SIZE) == 0);
	await(ucp_ep_close_nbx(ep, &close));
	printf("%d bytes came back\n", SIZE);
	free(data);
	free(back);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	ucs_sock_addr_t at = { (struct sockaddr *)&addr, sizeof(addr) };
	ucp_params_t param = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
	ucp_worker_params_t worker_param = { 0 };
	ucp_context_h context;
	ucp_config_t *config;

	MUST(argc == 3 && inet_pton(AF_INET, argv[2], &addr.sin_addr) == 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(ucp_config_read(NULL, NULL, &config));
	OK(ucp_init(&param, config, &context));
	ucp_config_release(config);
	OK(ucp_worker_create(context, &worker_param, &worker));
	if (strcmp(argv[1], "server") == 0)
		serve(at);
	else
		call(at);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return 0;
}
