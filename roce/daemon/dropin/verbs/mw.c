/* Memory windows. */
#include "lib.h"

#include <stdlib.h>

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct goroce_alloc_mw request = {pd->handle, (uint32_t)type};
	struct goroce_reg_reply r;
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	int err;

	if (!mw)
		return NULL;
	err = ask(pd->context, GOROCE_ALLOC_MW, &request, sizeof(request), &r, sizeof(r));
	if (err) {
		free(mw);
		return fail(err);
	}
	*mw = (struct ibv_mw){pd->context, pd, r.key, r.handle, type};
	return mw;
}

int mw_dealloc(struct ibv_mw *mw)
{
	int err = close_handle(mw->context, mw->handle, NULL);

	if (!err)
		free(mw);
	return err;
}

/* mw_bind binds a window of type 1, whose key changes: the lower 8 bits count the bindings. */
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags}, *bad;
	uint32_t key = (mw->rkey & ~0xFFu) | ((mw->rkey + 1) & 0xFF);
	int err;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = bind->bind_info;
	err = post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = key;
	return err;
}
