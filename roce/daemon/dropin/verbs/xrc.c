/* XRC domains. Processes share one by a file that they both have open. */
#include "lib.h"

#include <fcntl.h>
#include <stdlib.h>

struct ibv_xrcd *xrcd_open(struct ibv_context *v, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct goroce_alloc_xrcd request = {0};
	struct goroce_object r;
	struct call call = {
		.op = GOROCE_ALLOC_XRCD, .body = &request, .len = sizeof(request), .give = attr->fd, .reply = &r,
		.size = sizeof(r),
	};
	struct xrcd *x;
	int err;

	if (attr->comp_mask != needed || attr->oflags & ~(O_CREAT | O_EXCL))
		return fail(EINVAL);
	if (attr->fd < 0 && !(attr->oflags & O_CREAT))
		return fail(EINVAL);
	if (attr->fd >= 0 && fcntl(attr->fd, F_GETFD) < 0)
		return fail(EBADF);
	if (attr->oflags & O_CREAT)
		request.flags |= GOROCE_XRCD_CREATE;
	if (attr->oflags & O_EXCL)
		request.flags |= GOROCE_XRCD_EXCLUSIVE;
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	err = context_call(v, &call);
	if (err) {
		free(x);
		return fail(err);
	}
	x->v.context = v;
	x->handle = r.handle;
	x->born = forks;
	return &x->v;
}

int xrcd_close(struct ibv_xrcd *v)
{
	int err = close_object(v->context, xrcd_of(v)->born, GOROCE_KIND_XRCD, xrcd_of(v)->handle);

	if (!err)
		free(xrcd_of(v));
	return err;
}
