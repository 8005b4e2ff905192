/*
 * What the kernel's connection manager says of QPs, addresses and paths, in the structures of verbs: librdmacm
 * converts by these functions. The machine's own librdmacm does so over the daemon, too, with what libgoroce-sys.so has
 * answered in the kernel's place.
 *
 * Structures of the kernel's ABI have fields of 32 bits where those of verbs have narrower ones or enums. Numbers that
 * are big-endian stay so. Nothing is checked, and the functions cannot fail.
 */
#include "lib.h"

#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

/* A path record as infiniband/sa.h declares it, without what is reserved. */
struct ibv_sa_path_rec {
	union ibv_gid dgid, sgid;
	uint16_t dlid, slid; /* big-endian */
	int raw_traffic;
	uint32_t flow_label; /* big-endian */
	uint8_t hop_limit, traffic_class;
	int reversible;
	uint8_t numb_path;
	uint16_t pkey; /* big-endian */
	uint8_t sl, mtu_selector, mtu, rate_selector, rate;
	uint8_t packet_life_time_selector, packet_life_time, preference;
};

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from)
{
	memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof(to->grh.dgid.raw));
	to->grh.flow_label = from->grh.flow_label;
	to->grh.sgid_index = from->grh.sgid_index;
	to->grh.hop_limit = from->grh.hop_limit;
	to->grh.traffic_class = from->grh.traffic_class;
	to->dlid = from->dlid;
	to->sl = from->sl;
	to->src_path_bits = from->src_path_bits;
	to->static_rate = from->static_rate;
	to->is_global = from->is_global;
	to->port_num = from->port_num;
}

/* The attributes by which a program, or librdmacm for it, brings a QP to its next state (rdma_init_qp_attr). */
EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from)
{
	to->qp_state = from->qp_state;
	to->cur_qp_state = from->cur_qp_state;
	to->path_mtu = (int)from->path_mtu;
	to->path_mig_state = (int)from->path_mig_state;
	to->qkey = from->qkey;
	to->rq_psn = from->rq_psn;
	to->sq_psn = from->sq_psn;
	to->dest_qp_num = from->dest_qp_num;
	to->qp_access_flags = from->qp_access_flags;
	to->cap = (struct ibv_qp_cap){from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge,
			from->max_inline_data};
	ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
	ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
	to->pkey_index = from->pkey_index;
	to->alt_pkey_index = from->alt_pkey_index;
	to->en_sqd_async_notify = from->en_sqd_async_notify;
	to->sq_draining = from->sq_draining;
	to->max_rd_atomic = from->max_rd_atomic;
	to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	to->min_rnr_timer = from->min_rnr_timer;
	to->port_num = from->port_num;
	to->timeout = from->timeout;
	to->retry_cnt = from->retry_cnt;
	to->rnr_retry = from->rnr_retry;
	to->alt_port_num = from->alt_port_num;
	to->alt_timeout = from->alt_timeout;
}

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from)
{
	memcpy(to->dgid.raw, from->dgid, sizeof(to->dgid.raw));
	memcpy(to->sgid.raw, from->sgid, sizeof(to->sgid.raw));
	to->dlid = from->dlid;
	to->slid = from->slid;
	to->raw_traffic = (int)from->raw_traffic;
	to->flow_label = from->flow_label;
	to->hop_limit = (uint8_t)from->hop_limit;
	to->traffic_class = from->traffic_class;
	to->reversible = (int)from->reversible;
	to->numb_path = from->numb_path;
	to->pkey = from->pkey;
	to->sl = from->sl;
	to->mtu_selector = from->mtu_selector;
	to->mtu = from->mtu;
	to->rate_selector = from->rate_selector;
	to->rate = from->rate;
	to->packet_life_time_selector = from->packet_life_time_selector;
	to->packet_life_time = from->packet_life_time;
	to->preference = from->preference;
}

EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from)
{
	memcpy(to->dgid, from->dgid.raw, sizeof(from->dgid.raw));
	memcpy(to->sgid, from->sgid.raw, sizeof(from->sgid.raw));
	to->dlid = from->dlid;
	to->slid = from->slid;
	to->raw_traffic = (uint32_t)from->raw_traffic;
	to->flow_label = from->flow_label;
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	to->reversible = (uint32_t)from->reversible;
	to->numb_path = from->numb_path;
	to->pkey = from->pkey;
	to->sl = from->sl;
	to->mtu_selector = from->mtu_selector;
	to->mtu = from->mtu;
	to->rate_selector = from->rate_selector;
	to->rate = from->rate;
	to->packet_life_time_selector = from->packet_life_time_selector;
	to->packet_life_time = from->packet_life_time;
	to->preference = from->preference;
}
