/*
 * QUERY and QUERY_ROUTE: the addresses of an ID, and the path between them. librdmacm asks after bind and after
 * events, and takes from the answer on which device the ID is: it compares GUID and index with those of its list
 * (ibv_get_device_list), so both must be those that libibverbs has. What an ID has not yet is zero.
 *
 * RoCE has no subnet administration. The path is made up as cma.c does for RoCE, from the addresses, the traffic
 * class and the MTU of the route.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>

#include "cm.h"

/* Selector 2 of MTU, rate and lifetime means that the value is exact. The rate is nominal. The lifetime is 2^16 times
 * 4.096 us. FAMILY_IB is AF_IB. */
enum { PORT = 1, PKEY = 0xFFFF, EXACTLY = 2, RATE_10_GBPS = 3, PACKET_LIFETIME = 16, FAMILY_IB = 27 };

/* A sockaddr of AF_IB. */
struct sockaddr_ib {
	uint16_t family, pkey; /* this and all that follows is big-endian */
	uint32_t flow_info;
	uint8_t addr[16];
	uint64_t service_id, service_id_mask, scope_id;
};

/* gid_of returns the GID of an address: an IPv4 address is mapped (IBTA A17). */
static void gid_of(const struct goroce_cm_addr *a, uint8_t gid[16])
{
	memcpy(gid, a->ip, 16);
	if (a->family == 4)
		gid[10] = gid[11] = 0xFF;
}

/* placed reports whether an ID has a local address that is the device's. */
static bool placed(const struct goroce_cm_id_attr *a)
{
	return !cm_addr_any(&a->local);
}

static int ask(const struct cm_command *c, uint32_t id, struct goroce_cm_id_attr *a)
{
	struct goroce_object r = { .handle = id };

	return cm_request_id(c, GOROCE_QUERY_CM_ID, &r, sizeof(r), a, sizeof(*a));
}

/* routed reports whether an ID has a path: the daemon tells an address handle once the route is resolved. */
static bool routed(const struct goroce_cm_id_attr *a)
{
	static const uint8_t none[16];

	return memcmp(a->ah.dgid, none, sizeof(none)) != 0;
}

static void path_out(const struct goroce_cm_id_attr *a, struct ib_user_path_rec *to)
{
	gid_of(&a->local, to->sgid);
	memcpy(to->dgid, a->ah.dgid, sizeof(to->dgid));
	to->flow_label = htonl(a->ah.flow_label);
	to->traffic_class = a->ah.traffic_class;
	to->hop_limit = a->ah.hop_limit;
	to->reversible = 1;
	to->numb_path = 1;
	to->pkey = htons(PKEY);
	to->mtu_selector = to->rate_selector = to->packet_life_time_selector = EXACTLY;
	to->mtu = cm_mtu(a->path_mtu);
	to->rate = RATE_10_GBPS;
	to->packet_life_time = PACKET_LIFETIME;
}

/* cm_query_route answers QUERY_ROUTE: addresses, device and path in one. Older programs have no field for the
 * device's index. */
int cm_query_route(struct cm_command *c)
{
	const struct rdma_ucm_query *in = (void *)c->in;
	struct rdma_ucm_query_route_resp resp = { 0 };
	struct goroce_cm_id_attr a;
	int err;

	err = ask(c, in->id, &a);
	if (err)
		return err;
	cm_addr_out(&a.local, &resp.src_addr);
	cm_addr_out(&a.remote, &resp.dst_addr);
	if (placed(&a)) {
		const struct goroce_device_reply *dev = cm_device(c->ch.session, a.device);

		resp.node_guid = htobe64(dev->node_guid);
		resp.ibdev_index = dev->index;
		resp.port_num = PORT;
		gid_of(&a.local, resp.ib_route[0].sgid);
	}
	if (routed(&a)) {
		resp.num_paths = 1;
		path_out(&a, &resp.ib_route[0]);
	}
	return cm_respond(c, in->response, &resp, sizeof(resp));
}

/* device_out fills in what QUERY_ADDR and QUERY_GID have in common. */
static void device_out(const struct cm_command *c, const struct goroce_cm_id_attr *a,
		       struct rdma_ucm_query_addr_resp *resp)
{
	const struct goroce_device_reply *dev = cm_device(c->ch.session, a->device);

	if (!placed(a))
		return;
	resp->node_guid = htobe64(dev->node_guid);
	resp->ibdev_index = dev->index;
	resp->port_num = PORT;
	resp->pkey = htons(PKEY);
}

static void query_addr(const struct cm_command *c, const struct goroce_cm_id_attr *a,
		       struct rdma_ucm_query_addr_resp *resp)
{
	device_out(c, a, resp);
	resp->src_size = cm_addr_out(&a->local, &resp->src_addr);
	resp->dst_size = cm_addr_out(&a->remote, &resp->dst_addr);
}

/* gid_out writes an address as one of AF_IB: its GID, and as service ID the port space and the port, of which all
 * bits count (rdma_get_service_id). It returns the length, 0 for no address. */
static uint16_t gid_out(const struct goroce_cm_id_attr *a, const struct goroce_cm_addr *of, void *sockaddr)
{
	struct sockaddr_ib to = {
		.family = FAMILY_IB,
		.pkey = htons(PKEY),
		.service_id = htobe64((uint64_t)a->space << 16 | of->port),
		.service_id_mask = ~UINT64_C(0),
	};

	if (!of->family)
		return 0;
	gid_of(of, to.addr);
	memcpy(sockaddr, &to, sizeof(to));
	return sizeof(to);
}

static void query_gid(const struct cm_command *c, const struct goroce_cm_id_attr *a,
		      struct rdma_ucm_query_addr_resp *resp)
{
	device_out(c, a, resp);
	resp->src_size = gid_out(a, &a->local, &resp->src_addr);
	resp->dst_size = gid_out(a, &a->remote, &resp->dst_addr);
}

/* record_out writes a path record as it is in messages of the subnet administration (IBTA 15.2.5.16): big-endian,
 * LIDs and all else that RoCE has not zero. to has been zeroed. */
static void record_out(const struct goroce_cm_id_attr *a, uint8_t to[64])
{
	const uint32_t flow_hops = htonl(a->ah.flow_label << 8 | a->ah.hop_limit);

	memcpy(to + 8, a->ah.dgid, 16);
	gid_of(&a->local, to + 24);
	memcpy(to + 44, &flow_hops, sizeof(flow_hops));
	to[48] = a->ah.traffic_class;
	to[49] = 0x80 | 1; /* reversible, one path */
	to[50] = to[51] = 0xFF; /* P_Key */
	to[54] = EXACTLY << 6 | cm_mtu(a->path_mtu);
	to[55] = EXACTLY << 6 | RATE_10_GBPS;
	to[56] = EXACTLY << 6 | PACKET_LIFETIME;
}

/* query_path answers with the path record, if there is one and room for it. The number of paths is told in any case. */
static int query_path(const struct cm_command *c, const struct goroce_cm_id_attr *a, uint64_t response)
{
	struct {
		struct rdma_ucm_query_path_resp head;
		struct ib_path_rec_data path;
	} resp = { 0 };

	if (!routed(a))
		return cm_respond(c, response, &resp.head, sizeof(resp.head));
	resp.head.num_paths = 1;
	if (c->out < sizeof(resp))
		return cm_respond(c, response, &resp.head, sizeof(resp.head));
	resp.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	record_out(a, (uint8_t *)resp.path.path_rec);
	return cm_respond(c, response, &resp, sizeof(resp));
}

/* cm_query answers QUERY. An ID that is not there comes before an option that is unknown, as in ucma.c. The responses
 * have different lengths, so the room for that of the option is looked at here, and not by cm_run. */
int cm_query(struct cm_command *c)
{
	const struct rdma_ucm_query *in = (void *)c->in;
	struct rdma_ucm_query_addr_resp resp = { 0 };
	struct goroce_cm_id_attr a;
	int err;

	err = ask(c, in->id, &a);
	if (err)
		return err;
	if (in->option > RDMA_USER_CM_QUERY_GID)
		return ENOSYS;
	if (in->option != RDMA_USER_CM_QUERY_PATH && c->out < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
		return ENOSPC;
	switch (in->option) {
	case RDMA_USER_CM_QUERY_PATH:
		return query_path(c, &a, in->response);
	case RDMA_USER_CM_QUERY_ADDR:
		query_addr(c, &a, &resp);
		break;
	default:
		query_gid(c, &a, &resp);
	}
	return cm_respond(c, in->response, &resp, sizeof(resp));
}
