/*
 * The kernel's structures from the daemon's, and addresses both ways. The daemon's numbers are in the byte order of
 * the machine, MTUs in bytes; the kernel's structures have addresses and ports big-endian, and MTUs as codes. What
 * RoCE has not (LIDs, service levels, alternate paths) is zero.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include "cm.h"

enum { IPV4_AT = 12 }; /* in the 16 bytes of an address */

/* cm_addr_in converts a sockaddr of IPv4 or IPv6; false for another family. It reads as many bytes as a sockaddr_in6
 * has, which all commands have room for. The flow label of IPv6 is not used. */
bool cm_addr_in(const void *sockaddr, struct goroce_cm_addr *to)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} from;

	memset(to, 0, sizeof(*to));
	memcpy(&from, sockaddr, sizeof(from));
	switch (from.v4.sin_family) {
	case AF_INET:
		memcpy(to->ip + IPV4_AT, &from.v4.sin_addr, sizeof(from.v4.sin_addr));
		to->port = ntohs(from.v4.sin_port);
		to->family = 4;
		return true;
	case AF_INET6:
		memcpy(to->ip, &from.v6.sin6_addr, sizeof(from.v6.sin6_addr));
		to->port = ntohs(from.v6.sin6_port);
		to->family = 6;
		to->scope = from.v6.sin6_scope_id;
		return true;
	}
	return false;
}

/* cm_addr_out writes a sockaddr, of at most sizeof(struct sockaddr_in6), and returns its length. */
uint16_t cm_addr_out(const struct goroce_cm_addr *from, void *sockaddr)
{
	if (from->family == 4) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(from->port) };
		memcpy(&to.sin_addr, from->ip + IPV4_AT, sizeof(to.sin_addr));
		memcpy(sockaddr, &to, sizeof(to));
		return sizeof(to);
	}
	if (from->family == 6) {
		struct sockaddr_in6 to = {
			.sin6_family = AF_INET6, .sin6_port = htons(from->port), .sin6_scope_id = from->scope,
		};
		memcpy(&to.sin6_addr, from->ip, sizeof(to.sin6_addr));
		memcpy(sockaddr, &to, sizeof(to));
		return sizeof(to);
	}
	return 0;
}

bool cm_addr_any(const struct goroce_cm_addr *a)
{
	static const uint8_t any[16];

	return !a->family || memcmp(a->ip, any, sizeof(any)) == 0;
}

/* cm_addr_link_local: fe80::/10. Such an address says nothing without the interface. */
bool cm_addr_link_local(const struct goroce_cm_addr *a)
{
	return a->family == 6 && a->ip[0] == 0xFE && (a->ip[1] & 0xC0) == 0x80;
}

/* cm_ah_out: in RoCE each address has a GRH, so it is global. */
void cm_ah_out(const struct goroce_ah *from, struct ib_uverbs_ah_attr *to)
{
	memset(to, 0, sizeof(*to));
	memcpy(to->grh.dgid, from->dgid, sizeof(to->grh.dgid));
	to->grh.flow_label = from->flow_label;
	to->grh.sgid_index = (uint8_t)from->sgid_index;
	to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	to->is_global = 1;
	to->port_num = (uint8_t)from->port;
}

/* cm_mtu returns the code of a path MTU, ib_mtu: 1 for 256 bytes, or for an ID that has no route, to 5 for 4096. */
uint8_t cm_mtu(uint32_t bytes)
{
	uint8_t code = 1;

	for (uint32_t size = 256; size < bytes && code < 5; size *= 2)
		code++;
	return code;
}

/* cm_qp_attr_out: the mask says which attributes librdmacm is to set; the numbers of the bits are those of verbs. */
void cm_qp_attr_out(const struct goroce_qp_attr *from, struct ib_uverbs_qp_attr *to)
{
	memset(to, 0, sizeof(*to));
	to->qp_attr_mask = from->mask;
	to->qp_state = from->state;
	to->cur_qp_state = from->cur_state;
	to->path_mtu = cm_mtu(from->path_mtu);
	to->qkey = from->qkey;
	to->rq_psn = from->rq_psn;
	to->sq_psn = from->sq_psn;
	to->dest_qp_num = from->dest_qpn;
	to->qp_access_flags = from->access;
	cm_ah_out(&from->ah, &to->ah_attr);
	to->pkey_index = (uint16_t)from->pkey_index;
	to->max_rd_atomic = (uint8_t)from->max_rd_atomic;
	to->max_dest_rd_atomic = (uint8_t)from->max_dest_rd_atomic;
	to->min_rnr_timer = (uint8_t)from->min_rnr_timer;
	to->port_num = (uint8_t)from->port;
	to->timeout = (uint8_t)from->timeout;
	to->retry_cnt = (uint8_t)from->retry_cnt;
	to->rnr_retry = (uint8_t)from->rnr_retry;
}
