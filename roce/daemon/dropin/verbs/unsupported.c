/* Verbs that are not offered: memory of other devices and processes, counters of completions, processing hints. */
#include "lib.h"

#define NO_OBJECT(name) \
	EXPORT void *name(void); \
	void *name(void) { return fail(EOPNOTSUPP); }
#define NO_ACTION(name) \
	EXPORT int name(void); \
	int name(void) { return EOPNOTSUPP; }

/* Objects of another process */
NO_OBJECT(ibv_import_device)
NO_OBJECT(ibv_import_pd)
NO_OBJECT(ibv_import_mr)
NO_OBJECT(ibv_import_dm)
NO_ACTION(ibv_unimport_pd)
NO_ACTION(ibv_unimport_mr)
NO_ACTION(ibv_unimport_dm)

/* Memory of devices, and with hints */
NO_OBJECT(ibv_reg_dmabuf_mr)
NO_OBJECT(ibv_reg_mr_ex)
NO_OBJECT(ibv_alloc_dmah)
NO_ACTION(ibv_dealloc_dmah)
NO_OBJECT(ibv_alloc_buf)
NO_ACTION(ibv_free_buf)
NO_OBJECT(ibv_reg_buf_mr)

EXPORT int ibv_dm_export_dmabuf_fd(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* Counters of completions */
NO_OBJECT(ibv_create_comp_cntr)
NO_ACTION(ibv_destroy_comp_cntr)
NO_ACTION(ibv_set_comp_cntr)
NO_ACTION(ibv_set_err_comp_cntr)
NO_ACTION(ibv_inc_comp_cntr)
NO_ACTION(ibv_inc_err_comp_cntr)
NO_ACTION(ibv_read_comp_cntr)
NO_ACTION(ibv_read_err_comp_cntr)
NO_ACTION(ibv_qp_attach_comp_cntr)
NO_ACTION(ibv_query_comp_cntr_caps)

/* Providers in libraries of their own */
EXPORT void ibv_register_driver(void) {}
