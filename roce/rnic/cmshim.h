//go:build rnic && cgo

// The C side of the connection manager. Structs of librdmacm that contain unions have flat
// counterparts here.

#ifndef GOROCE_RNIC_CMSHIM_H
#define GOROCE_RNIC_CMSHIM_H

#include <rdma/rdma_cma.h>

// RNIC_ENOTSUPP is the errno that Linux's rdma_cm returns, to user space too, for a group that it
// cannot join.
#define RNIC_ENOTSUPP 524

// rnic_addr is a socket address. An IPv4 address is in its IPv6-mapped form.
struct rnic_addr {
	uint8_t ip[16];
	uint32_t scope; // interface index of a link-local address
	uint16_t port;
	uint8_t family; // 4, 6, or 0 for no address
};

// rnic_cm_param has the parameters of one end of a connection.
struct rnic_cm_param {
	uint32_t qpn, qkey;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry, srq;
	uint8_t private_len;
	uint8_t private_data[255];
};

// rnic_cm_event is a copy of an event that was acknowledged. id and listener are those of
// librdmacm; for RDMA_CM_EVENT_CONNECT_REQUEST id is new.
struct rnic_cm_event {
	struct rdma_cm_id *id, *listener;
	uintptr_t group; // of a join: the number passed to rnic_cm_join
	int type, status;
	struct rnic_cm_param param;
	struct ibv_ah_attr ah; // UD
};

// rnic_cm_info has librdmacm's attributes of an ID.
struct rnic_cm_info {
	struct rnic_addr local, remote;
	const char *device; // NULL before the ID has one
	uint8_t mtu;        // this and the rest are of its path; code 0 if there is none yet
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
};

// rnic_cm_path is a path that is set instead of calling rdma_resolve_route.
struct rnic_cm_path {
	uint8_t local[16], remote[16]; // GIDs
	uint8_t mtu;                   // code
	uint8_t traffic_class, hop_limit, packet_life_time;
	uint32_t flow_label;
};

// All functions return 0 or an errno. None blocks; rnic_cm_next returns EAGAIN if there is no event.
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
