/*
 * The private part of the interface, between libibverbs and the providers of the kernel's drivers. Programs such as
 * perftest are linked with libmlx5 and libefa, which do not load without these names; they call them only for devices
 * of theirs. Each release of rdma-core that changed the private part has a version of its own: all are here.
 */
#include "lib.h"

/* One function under a name of each version; 34 is what a linker takes. A program that is linked with a provider asks
 * for the name with the version of the rdma-core that it was built with, and is not started if that is missing. */
#define VERSION(name, at, n) \
	EXPORT extern __typeof__(all_##name) name##_private_##n __attribute__((alias("all_" #name))); \
	__asm__(".symver " #name "_private_" #n ", " #name #at "IBVERBS_PRIVATE_" #n);

#define VERSIONS(name) \
	VERSION(name, @, 22) VERSION(name, @, 25) VERSION(name, @@, 34) VERSION(name, @, 57) VERSION(name, @, 59) \
	VERSION(name, @, 64) VERSION(name, @, 65)

/* What a provider calls for devices of its own. None is called here; whoever does it gets EOPNOTSUPP. */
#define STUB(name) \
	int all_##name(void); \
	int all_##name(void) { return EOPNOTSUPP; } \
	VERSIONS(name)

#define NO_OBJECT(name) \
	void *all_##name(void); \
	void *all_##name(void) { return fail(EOPNOTSUPP); } \
	VERSIONS(name)

STUB(__ioctl_final_num_attrs)
STUB(__verbs_log)
NO_OBJECT(_verbs_init_and_alloc_context)
STUB(execute_ioctl)
STUB(ibv_cmd_advise_mr)
STUB(ibv_cmd_alloc_dm)
STUB(ibv_cmd_alloc_dmah)
STUB(ibv_cmd_alloc_mw)
STUB(ibv_cmd_alloc_pd)
STUB(ibv_cmd_attach_mcast)
STUB(ibv_cmd_close_xrcd)
STUB(ibv_cmd_create_ah)
STUB(ibv_cmd_create_comp_cntr)
STUB(ibv_cmd_create_counters)
STUB(ibv_cmd_create_cq)
STUB(ibv_cmd_create_cq_ex)
STUB(ibv_cmd_create_cq_ex2)
STUB(ibv_cmd_create_flow)
STUB(ibv_cmd_create_flow_action_esp)
STUB(ibv_cmd_create_qp)
STUB(ibv_cmd_create_qp_ex)
STUB(ibv_cmd_create_qp_ex2)
STUB(ibv_cmd_create_rwq_ind_table)
STUB(ibv_cmd_create_srq)
STUB(ibv_cmd_create_srq_ex)
STUB(ibv_cmd_create_wq)
STUB(ibv_cmd_dealloc_mw)
STUB(ibv_cmd_dealloc_pd)
STUB(ibv_cmd_dereg_mr)
STUB(ibv_cmd_destroy_ah)
STUB(ibv_cmd_destroy_comp_cntr)
STUB(ibv_cmd_destroy_counters)
STUB(ibv_cmd_destroy_cq)
STUB(ibv_cmd_destroy_flow)
STUB(ibv_cmd_destroy_flow_action)
STUB(ibv_cmd_destroy_qp)
STUB(ibv_cmd_destroy_rwq_ind_table)
STUB(ibv_cmd_destroy_srq)
STUB(ibv_cmd_destroy_wq)
STUB(ibv_cmd_detach_mcast)
STUB(ibv_cmd_export_dmabuf_fd)
STUB(ibv_cmd_free_dm)
STUB(ibv_cmd_free_dmah)
STUB(ibv_cmd_get_context)
STUB(ibv_cmd_inc_comp_cntr)
STUB(ibv_cmd_inc_err_comp_cntr)
STUB(ibv_cmd_modify_cq)
STUB(ibv_cmd_modify_flow_action_esp)
STUB(ibv_cmd_modify_qp)
STUB(ibv_cmd_modify_qp_ex)
STUB(ibv_cmd_modify_srq)
STUB(ibv_cmd_modify_wq)
STUB(ibv_cmd_open_qp)
STUB(ibv_cmd_open_xrcd)
STUB(ibv_cmd_poll_cq)
STUB(ibv_cmd_post_recv)
STUB(ibv_cmd_post_send)
STUB(ibv_cmd_post_srq_recv)
STUB(ibv_cmd_qp_attach_comp_cntr)
STUB(ibv_cmd_query_comp_cntr_caps)
STUB(ibv_cmd_query_context)
STUB(ibv_cmd_query_device)
STUB(ibv_cmd_query_device_any)
STUB(ibv_cmd_query_device_ex)
STUB(ibv_cmd_query_mr)
STUB(ibv_cmd_query_port)
STUB(ibv_cmd_query_port_speed)
STUB(ibv_cmd_query_qp)
STUB(ibv_cmd_query_srq)
STUB(ibv_cmd_read_comp_cntr)
STUB(ibv_cmd_read_counters)
STUB(ibv_cmd_read_err_comp_cntr)
STUB(ibv_cmd_reg_dm_mr)
STUB(ibv_cmd_reg_dmabuf_mr)
STUB(ibv_cmd_reg_mr)
STUB(ibv_cmd_reg_mr_ex)
STUB(ibv_cmd_req_notify_cq)
STUB(ibv_cmd_rereg_mr)
STUB(ibv_cmd_resize_cq)
STUB(ibv_cmd_set_comp_cntr)
STUB(ibv_cmd_set_err_comp_cntr)
NO_OBJECT(ibv_dmabuf_heap_alloc)
NO_OBJECT(ibv_dmabuf_heap_cc_shared_init)
STUB(ibv_dmabuf_heap_destroy)
STUB(ibv_dmabuf_heap_free)
STUB(ibv_get_fw_ver)
STUB(ibv_read_ibdev_sysfs_file)
STUB(verbs_init_cq)
NO_OBJECT(verbs_open_device)
STUB(verbs_set_ops)
STUB(verbs_uninit_context)

/* verbs_register_driver_N: what a provider calls when it is loaded, from a constructor. It must not fail, and finds no
 * devices: the list of devices has the daemon's only. */
#define REGISTER(n) EXPORT void verbs_register_driver_##n(const void *ops __attribute__((unused))) {}
REGISTER(22)
REGISTER(25)
REGISTER(34)
REGISTER(57)
REGISTER(59)
REGISTER(64)
REGISTER(65)

/* A variable, which libibverbs sets and providers read when the kernel's device is gone. Here nobody does. */
bool all_verbs_allow_disassociate_destroy;
VERSIONS(verbs_allow_disassociate_destroy)

/* Types as ibv_devinfo asks for them: 0 is RoCE version 1, 1 is version 2. */
int all_ibv_query_gid_type(struct ibv_context *v, uint8_t port, unsigned int index, int *type);
int all_ibv_query_gid_type(struct ibv_context *v, uint8_t port, unsigned int index, int *type)
{
	struct goroce_gid_entry row;
	int err = gid_at(v, port, index, &row);

	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*type = !err;
	return 0;
}
VERSIONS(ibv_query_gid_type)

/* infiniband/verbs.h declares it, and yet its versions are those of the private part. */
const char *all_ibv_wr_opcode_str(unsigned int opcode);
const char *all_ibv_wr_opcode_str(unsigned int opcode)
{
	static const char *const names[] = {
		"rdma-write", "rdma-write-with-imm", "send", "send-with-imm", "rdma-read", "atomic-cmp-and-swp",
		"atomic-fetch-and-add", "local-inv", "bind-mw", "send-with-inv", "tso", "driver1",
		[IBV_WR_FLUSH] = "flush", [IBV_WR_ATOMIC_WRITE] = "atomic-write",
	};

	return opcode < sizeof(names) / sizeof(*names) && names[opcode] ? names[opcode] : "unknown";
}
VERSIONS(ibv_wr_opcode_str)
