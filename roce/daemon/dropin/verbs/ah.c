/*
 * Address handles. The daemon has the address; work requests of UD name it by a number, so that the daemon follows no
 * pointer of the program's. RoCE has no LIDs: of an ibv_ah_attr, dlid, sl, src_path_bits and static_rate mean nothing.
 */
#include "lib.h"

#include <endian.h>
#include <stdlib.h>

enum { FLOW_LABEL = 0xFFFFF }; /* its 20 bits */

/* ah_to_daemon refuses local addresses: RoCE has GIDs only. It serves address handles, and IBV_QP_AV of
 * ibv_modify_qp. */
int ah_to_daemon(const struct ibv_ah_attr *from, struct goroce_ah *to)
{
	if (!from->is_global || !from->port_num)
		return EINVAL;
	memcpy(to->dgid, from->grh.dgid.raw, sizeof(to->dgid));
	to->sgid_index = from->grh.sgid_index;
	to->port = from->port_num;
	to->flow_label = from->grh.flow_label & FLOW_LABEL;
	to->traffic_class = from->grh.traffic_class;
	to->hop_limit = from->grh.hop_limit;
	return 0;
}

/* ah_refused returns the errno of a call whose address the daemon has refused: Linux tells a source without an address
 * from other mistakes. */
int ah_refused(struct ibv_context *v, const struct ibv_ah_attr *attr, int err)
{
	struct goroce_gid_entry e;

	if (err != EINVAL || attr->port_num != PORT || !gid_at(v, PORT, attr->grh.sgid_index, &e))
		return err;
	return ENODATA;
}

void ah_from_daemon(const struct goroce_ah *from, struct ibv_ah_attr *to)
{
	memcpy(to->grh.dgid.raw, from->dgid, sizeof(from->dgid));
	to->grh.sgid_index = (uint8_t)from->sgid_index;
	to->grh.flow_label = from->flow_label;
	to->grh.traffic_class = from->traffic_class;
	to->grh.hop_limit = from->hop_limit;
	to->port_num = (uint8_t)from->port;
	to->is_global = 1;
}

/* ibv_create_ah takes memory first: if there is none, the daemon has nothing to undo. */
EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct goroce_create_ah request = {.pd = pd->handle};
	struct goroce_reg_reply r;
	struct ah *ah;
	int err = pd_dead(pd);

	if (!err)
		err = ah_to_daemon(attr, &request.ah);
	if (err)
		return fail(err);
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	err = ask(pd->context, GOROCE_CREATE_AH, &request, sizeof(request), &r, sizeof(r));
	if (err) {
		free(ah);
		return fail(ah_refused(pd->context, attr, err));
	}
	ah->v = (struct ibv_ah){pd->context, pd, r.handle};
	ah->num = r.key;
	ah->born = forks;
	return &ah->v;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *v)
{
	int err = close_object(v->context, ah_of(v)->born, GOROCE_KIND_AH, v->handle);

	if (!err)
		free(ah_of(v));
	return err;
}

/* What of an IPv4 header an answer needs. It stands in the last 20 bytes of the GRH's 40 (IBTA A17.4.5.2). */
struct ipv4 {
	uint8_t version_ihl, tos;
	uint16_t length, id, fragment;
	uint8_t ttl, protocol;
	uint16_t checksum;
	uint8_t source[4], destination[4];
};

/* mapped makes the GID of an IPv4 address, which is IPv6's form of it, ::ffff:a.b.c.d. */
static void mapped(union ibv_gid *gid, const uint8_t ip[4])
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xFF;
	memcpy(gid->raw + 12, ip, 4);
}

/* answer fills in the way back to the sender of a datagram, and returns to which GID it was sent. What the daemon
 * writes in front of an IPv4 header is zero, so the version field, where IPv6 would have it, tells the two apart. */
static union ibv_gid answer(const struct ibv_grh *grh, struct ibv_global_route *to)
{
	uint32_t word = be32toh(grh->version_tclass_flow);
	union ibv_gid own = grh->dgid;
	struct ipv4 ip;

	to->hop_limit = 64;
	if (word >> 28 == 6) {
		to->dgid = grh->sgid;
		to->flow_label = word & FLOW_LABEL;
		to->traffic_class = (uint8_t)(word >> 20);
		return own;
	}
	memcpy(&ip, (const char *)grh + sizeof(*grh) - sizeof(ip), sizeof(ip));
	mapped(&to->dgid, ip.source);
	mapped(&own, ip.destination);
	to->traffic_class = ip.tos;
	return own;
}

/*
 * ibv_init_ah_from_wc takes the source from the address to which the datagram was sent. It fails with
 * ENOENT for a datagram to a multicast group, and for one to an address that the port has lost since. A completion
 * without a GRH is none of a datagram, and gives attributes that ibv_create_ah refuses.
 */
EXPORT int ibv_init_ah_from_wc(struct ibv_context *v, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
		struct ibv_ah_attr *attr)
{
	union ibv_gid own;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	own = answer(grh, &attr->grh);
	index = gid_find(v, &own);
	if (index < 0 || index > UINT8_MAX) {
		errno = ENOENT;
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}
