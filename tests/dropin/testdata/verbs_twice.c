/* The daemon gives the second CQ the handle of the first. The connection ends, and the first CQ stays whole. */
#include "verbs_common.h"

int main(void)
{
	struct ibv_async_event e;
	struct ibv_wc wc;

	open_first();
	FAILS(EIO, ibv_create_cq(ctx, 1, NULL, NULL, 0));
	MUST(!ibv_get_async_event(ctx, &e) && e.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&e);
	MUST(ibv_poll_cq(cq, 1, &wc) <= 0);
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	free(buf);
	return 0;
}
