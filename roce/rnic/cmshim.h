//go:build rnic && cgo

// The C side of the connection manager: librdmacm's structs with unions in them have flat
// twins here.

#ifndef GOROCE_RNIC_CMSHIM_H
#define GOROCE_RNIC_CMSHIM_H

#include <rdma/rdma_cma.h>

// RNIC_ENOTSUPP is what Linux's rdma_cm says, to user space too, for a group it cannot join.
#define RNIC_ENOTSUPP 524

// rnic_addr is a socket address. An IPv4 address is in its IPv6-mapped form.
struct rnic_addr {
	uint8_t ip[16];
	uint32_t scope; // interface index of a link-local address
	uint16_t port;
	uint8_t family; // 4, 6, or 0 for no address
};

// rnic_cm_param is what one end brings to a connection.
struct rnic_cm_param {
	uint32_t qpn, qkey;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry, srq;
	uint8_t private_len;
	uint8_t private_data[255];
};

// rnic_cm_event is an event, acknowledged. id and listener are as librdmacm has them; id is
// new with RDMA_CM_EVENT_CONNECT_REQUEST.
struct rnic_cm_event {
	struct rdma_cm_id *id, *listener;
	uintptr_t group; // of a join: what rnic_cm_join was given
	int type, status;
	struct rnic_cm_param param;
	struct ibv_ah_attr ah; // UD
};

// rnic_cm_info is what librdmacm knows of an ID.
struct rnic_cm_info {
	struct rnic_addr local, remote;
	const char *device; // NULL before the ID has one
	uint8_t mtu;        // the rest is of its path; code 0 if there is none yet
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
};

// rnic_cm_path is a path to be set in place of what rdma_resolve_route would find.
struct rnic_cm_path {
	uint8_t local[16], remote[16]; // GIDs
	uint8_t mtu;                   // code
	uint8_t traffic_class, hop_limit, packet_life_time;
	uint32_t flow_label;
};

// All functions return 0 or an errno. None waits; rnic_cm_next says EAGAIN if there is no event.
int rnic_cm_next(struct rdma_event_channel *channel, struct rnic_cm_event *to);
int rnic_cm_bind(struct rdma_cm_id *id, const struct rnic_addr *local);
int rnic_cm_resolve_addr(struct rdma_cm_id *id, const struct rnic_addr *local, const struct rnic_addr *remote, int ms);
int rnic_cm_set_path(struct rdma_cm_id *id, const struct rnic_cm_path *path);
int rnic_cm_set_option(struct rdma_cm_id *id, int option, int value);
int rnic_cm_connect(struct rdma_cm_id *id, const struct rnic_cm_param *param);
int rnic_cm_accept(struct rdma_cm_id *id, const struct rnic_cm_param *param);
int rnic_cm_reject(struct rdma_cm_id *id, int vendor_option, const struct rnic_cm_param *param);
int rnic_cm_join(struct rdma_cm_id *id, const struct rnic_addr *to, uintptr_t group);
int rnic_cm_leave(struct rdma_cm_id *id, const struct rnic_addr *group);
int rnic_cm_init_qp_attr(struct rdma_cm_id *id, int state, struct ibv_qp_attr *attr, int *mask);
void rnic_cm_query(struct rdma_cm_id *id, struct rnic_cm_info *to);

#endif
