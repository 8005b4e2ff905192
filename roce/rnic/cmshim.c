//go:build rnic && cgo

#include "cmshim.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

static int errno_of(int ret) { return ret ? errno : 0; }

// ---- Addresses

// sockaddr_of fills in to and returns it, or NULL for no address.
static struct sockaddr *sockaddr_of(const struct rnic_addr *from, struct sockaddr_storage *to)
{
	memset(to, 0, sizeof *to);
	if (from->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)to;

		in->sin_family = AF_INET;
		in->sin_port = htons(from->port);
		memcpy(&in->sin_addr, from->ip + 12, 4);
	} else if (from->family == 6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(from->port);
		in6->sin6_scope_id = from->scope;
		memcpy(&in6->sin6_addr, from->ip, 16);
	} else {
		return NULL;
	}
	return (struct sockaddr *)to;
}

static void addr_of(const struct sockaddr *from, struct rnic_addr *to)
{
	memset(to, 0, sizeof *to);
	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)from;

		to->family = 4;
		to->port = ntohs(in->sin_port);
		memset(to->ip + 10, 0xFF, 2);
		memcpy(to->ip + 12, &in->sin_addr, 4);
	} else if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

		to->family = 6;
		to->port = ntohs(in6->sin6_port);
		memcpy(to->ip, &in6->sin6_addr, 16);
	}
}

int rnic_cm_bind(struct rdma_cm_id *id, const struct rnic_addr *local)
{
	struct sockaddr_storage at;

	return errno_of(rdma_bind_addr(id, sockaddr_of(local, &at)));
}

int rnic_cm_resolve_addr(struct rdma_cm_id *id, const struct rnic_addr *local, const struct rnic_addr *remote, int ms)
{
	struct sockaddr_storage from, to;

	return errno_of(rdma_resolve_addr(id, sockaddr_of(local, &from), sockaddr_of(remote, &to), ms));
}

int rnic_cm_join(struct rdma_cm_id *id, const struct rnic_addr *to, uintptr_t group)
{
	struct sockaddr_storage addr;
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = sockaddr_of(to, &addr),
	};

	return errno_of(rdma_join_multicast_ex(id, &attr, (void *)group));
}

int rnic_cm_leave(struct rdma_cm_id *id, const struct rnic_addr *group)
{
	struct sockaddr_storage addr;

	return errno_of(rdma_leave_multicast(id, sockaddr_of(group, &addr)));
}

// ---- Options and paths

int rnic_cm_set_option(struct rdma_cm_id *id, int option, int value)
{
	uint8_t byte = value;

	if (option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT)
		return errno_of(rdma_set_option(id, RDMA_OPTION_ID, option, &byte, sizeof byte));
	return errno_of(rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value));
}

int rnic_cm_set_path(struct rdma_cm_id *id, const struct rnic_cm_path *path)
{
	const uint8_t exactly = 2 << 6; // selector "exactly" of path records (IBTA 15.2.5.16)
	struct ibv_path_data data = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {
			.flowlabel_hoplimit = htobe32(path->flow_label << 8 | path->hop_limit),
			.tclass = path->traffic_class,
			.reversible_numpath = 1 << 7 | 1,
			.pkey = htobe16(0xFFFF),
			.mtu = exactly | path->mtu,
			.rate = exactly, // the port's rate
			.packetlifetime = exactly | path->packet_life_time,
		},
	};

	memcpy(&data.path.sgid, path->local, 16);
	memcpy(&data.path.dgid, path->remote, 16);
	return errno_of(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data));
}

void rnic_cm_query(struct rdma_cm_id *id, struct rnic_cm_info *to)
{
	memset(to, 0, sizeof *to);
	addr_of(rdma_get_local_addr(id), &to->local);
	addr_of(rdma_get_peer_addr(id), &to->remote);
	if (id->verbs)
		to->device = ibv_get_device_name(id->verbs->device);
	if (id->route.num_paths > 0) {
		const struct ibv_sa_path_rec *path = id->route.path_rec;

		to->mtu = path->mtu;
		to->traffic_class = path->traffic_class;
		to->hop_limit = path->hop_limit;
		to->flow_label = be32toh(path->flow_label);
	}
}

// ---- Connections

static struct rdma_conn_param conn_param(const struct rnic_cm_param *p)
{
	return (struct rdma_conn_param){
		.private_data = p->private_data,
		.private_data_len = p->private_len,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry,
		.srq = p->srq,
		.qp_num = p->qpn,
	};
}

int rnic_cm_connect(struct rdma_cm_id *id, const struct rnic_cm_param *param)
{
	struct rdma_conn_param p = conn_param(param);

	return errno_of(rdma_connect(id, &p));
}

int rnic_cm_accept(struct rdma_cm_id *id, const struct rnic_cm_param *param)
{
	struct rdma_conn_param p = conn_param(param);

	return errno_of(rdma_accept(id, &p));
}

int rnic_cm_reject(struct rdma_cm_id *id, int vendor_option, const struct rnic_cm_param *param)
{
	if (vendor_option) // sends reason 35, where rdma_reject sends 28
		return errno_of(rdma_reject_ece(id, param->private_data, param->private_len));
	return errno_of(rdma_reject(id, param->private_data, param->private_len));
}

int rnic_cm_init_qp_attr(struct rdma_cm_id *id, int state, struct ibv_qp_attr *attr, int *mask)
{
	memset(attr, 0, sizeof *attr);
	attr->qp_state = state;
	return errno_of(rdma_init_qp_attr(id, attr, mask));
}

// ---- Events

static void copy_conn(const struct rdma_conn_param *from, struct rnic_cm_param *to)
{
	to->qpn = from->qp_num;
	to->responder_resources = from->responder_resources;
	to->initiator_depth = from->initiator_depth;
	to->retry_count = from->retry_count;
	to->rnr_retry = from->rnr_retry_count;
	to->srq = from->srq;
	to->private_len = from->private_data_len;
	if (to->private_len)
		memcpy(to->private_data, from->private_data, to->private_len);
}

static void copy_ud(const struct rdma_ud_param *from, struct rnic_cm_event *to)
{
	to->param.qpn = from->qp_num;
	to->param.qkey = from->qkey;
	to->ah = from->ah_attr;
	if (to->type == RDMA_CM_EVENT_MULTICAST_JOIN || to->type == RDMA_CM_EVENT_MULTICAST_ERROR) {
		to->group = (uintptr_t)from->private_data;
		return;
	}
	to->param.private_len = from->private_data_len;
	if (to->param.private_len)
		memcpy(to->param.private_data, from->private_data, to->param.private_len);
}

int rnic_cm_next(struct rdma_event_channel *channel, struct rnic_cm_event *to)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		return errno;
	memset(to, 0, sizeof *to);
	to->id = event->id;
	to->listener = event->listen_id;
	to->type = event->event;
	to->status = event->status;
	if (event->id->qp_type == IBV_QPT_UD)
		copy_ud(&event->param.ud, to);
	else
		copy_conn(&event->param.conn, &to->param);
	return errno_of(rdma_ack_cm_event(event));
}
