/* Verbs that are not offered: memory of other devices and processes, counters of completions, processing hints. */
#include "lib.h"

#define NO_OBJECT(name) \
	EXPORT void *name(void); \
	void *name(void) { return fail(EOPNOTSUPP); }
#define NO_ACTION(name) \
	EXPORT int name(void); \
	int name(void) { return EOPNOTSUPP; }
#define NO_FILE(name) \
	EXPORT int name(void); \
	int name(void) { errno = EOPNOTSUPP; return -1; }

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
EXPORT void ibv_free_buf(void);
void ibv_free_buf(void) {}
NO_OBJECT(ibv_reg_buf_mr)

NO_FILE(ibv_dm_export_dmabuf_fd)
NO_FILE(ibv_export_buf_dmabuf_fd)

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
NO_ACTION(_ibv_query_comp_cntr_caps)

/* Providers in libraries of their own. Old ones only: there is no default for a linker to take. */
EXPORT void ibv_register_driver_1_1(void);
void ibv_register_driver_1_1(void) {}
__asm__(".symver ibv_register_driver_1_1, ibv_register_driver@IBVERBS_1.1");
