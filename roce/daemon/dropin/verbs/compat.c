/*
 * IBVERBS_1.0: functions with the structures of before 2006. A program of that time links, and finds an empty list of
 * devices, so it calls none of the other functions.
 */
#include "lib.h"

#include <stdlib.h>

/* Parameters are left out, as they are ignored. Some of the functions had no result: their callers ignore the value. */
#define OLD(type, name, value) \
	EXPORT type name##_1_0(void); \
	type name##_1_0(void) { return value; } \
	__asm__(".symver " #name "_1_0, " #name "@IBVERBS_1.0");
#define NO_OBJECT(name) OLD(void *, name, fail(EOPNOTSUPP))
#define NO_ACTION(name) OLD(int, name, EOPNOTSUPP)

EXPORT void **ibv_get_device_list_1_0(int *num)
{
	if (num)
		*num = 0;
	return calloc(1, sizeof(void *));
}
__asm__(".symver ibv_get_device_list_1_0, ibv_get_device_list@IBVERBS_1.0");

EXPORT void ibv_free_device_list_1_0(void **list) { free(list); }
__asm__(".symver ibv_free_device_list_1_0, ibv_free_device_list@IBVERBS_1.0");

NO_ACTION(ibv_ack_async_event)
NO_ACTION(ibv_ack_cq_events)
NO_OBJECT(ibv_alloc_pd)
NO_ACTION(ibv_attach_mcast)
NO_ACTION(ibv_close_device)
NO_OBJECT(ibv_create_ah)
NO_OBJECT(ibv_create_cq)
NO_OBJECT(ibv_create_qp)
NO_OBJECT(ibv_create_srq)
NO_ACTION(ibv_dealloc_pd)
NO_ACTION(ibv_dereg_mr)
NO_ACTION(ibv_destroy_ah)
NO_ACTION(ibv_destroy_cq)
NO_ACTION(ibv_destroy_qp)
NO_ACTION(ibv_destroy_srq)
NO_ACTION(ibv_detach_mcast)
NO_ACTION(ibv_get_async_event)
NO_ACTION(ibv_get_cq_event)
NO_ACTION(ibv_get_device_guid)
NO_OBJECT(ibv_get_device_name)
NO_ACTION(ibv_modify_qp)
NO_ACTION(ibv_modify_srq)
NO_OBJECT(ibv_open_device)
NO_ACTION(ibv_query_device)
NO_ACTION(ibv_query_gid)
NO_ACTION(ibv_query_pkey)
NO_ACTION(ibv_query_port)
NO_ACTION(ibv_query_qp)
NO_ACTION(ibv_query_srq)
NO_OBJECT(ibv_reg_mr)
NO_ACTION(ibv_resize_cq)
