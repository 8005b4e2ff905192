/* To which device IDs bind: cm_devices ADDR... prints for each address what a bind says, and the device that the ID has. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "must.h"

static struct rdma_cm_id *make(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

static const char *device(const struct rdma_cm_id *id)
{
	return id->verbs ? ibv_get_device_name(id->verbs->device) : "none";
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	MUST(ch);
	for (int i = 1; i < argc; i++) {
		struct sockaddr_in a = { .sin_family = AF_INET };
		struct rdma_cm_id *id = make(ch);
		int err;

		MUST(inet_pton(AF_INET, argv[i], &a.sin_addr) == 1);
		err = rdma_bind_addr(id, (struct sockaddr *)&a) ? errno : 0;
		printf("%s: %s, device %s\n", argv[i], err ? strerrorname_np(err) : "ok", device(id));
		MUST(rdma_destroy_id(id) == 0);
	}
	rdma_destroy_event_channel(ch);
	return 0;
}
