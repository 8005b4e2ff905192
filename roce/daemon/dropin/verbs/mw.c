/* Memory windows. */
#include "lib.h"

#include <stdlib.h>

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct goroce_alloc_mw request = {pd->handle, (uint32_t)type};
	struct goroce_reg_reply r;
	struct mw *mw;
	int err = pd_dead(pd);

	if (err)
		return fail(err);
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	err = ask(pd->context, GOROCE_ALLOC_MW, &request, sizeof(request), &r, sizeof(r));
	if (err) {
		free(mw);
		return fail(err);
	}
	*mw = (struct mw){{pd->context, pd, r.key, r.handle, type}, forks};
	return &mw->v;
}

int mw_dealloc(struct ibv_mw *mw)
{
	int err = close_object(mw->context, mw_of(mw)->born, GOROCE_KIND_MW, mw->handle);

	if (!err)
		free(mw_of(mw));
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
