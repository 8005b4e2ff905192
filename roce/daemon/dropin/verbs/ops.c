/* The operations that programs call through their context. NULL: not offered. */
#include "lib.h"

static const struct verbs_context offered = {
	.query_port = query_port,
	.advise_mr = mr_advise,
	.modify_qp_rate_limit = qp_set_rate_limit,
	.alloc_parent_domain = parent_domain_alloc,
	.alloc_td = td_alloc,
	.dealloc_td = td_dealloc,
	.modify_cq = cq_moderate,
	.post_srq_ops = srq_post_ops,
	.query_rt_values = query_rt_values,
	.create_cq_ex = cq_create_ex,
	.query_device_ex = query_device_ex,
	.open_qp = qp_open,
	.create_qp_ex = qp_create_ex,
	.get_srq_num = srq_num,
	.create_srq_ex = srq_create_ex,
	.open_xrcd = xrcd_open,
	.close_xrcd = xrcd_close,
	.sz = sizeof(struct verbs_context),
	.context = {
		.ops = {
			.alloc_mw = mw_alloc,
			.bind_mw = mw_bind,
			.dealloc_mw = mw_dealloc,
			.poll_cq = cq_poll,
			.req_notify_cq = cq_notify,
			.post_srq_recv = srq_post,
			.post_send = post_send,
			.post_recv = post_recv,
		},
		.abi_compat = (void *)UINTPTR_MAX,
	},
};

/* context_set_ops keeps what open has filled in. */
void context_set_ops(struct verbs_context *v)
{
	int vectors = v->context.num_comp_vectors;

	*v = offered;
	v->context.num_comp_vectors = vectors;
}
