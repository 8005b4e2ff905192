/*
 * Protection domains, and the hints to a provider's locking: thread domains and parent domains. Of those the daemon
 * knows nothing. A parent domain is a struct ibv_pd that programs may pass wherever a protection domain is taken, so
 * it has the handle of its own. A thread domain lets a provider leave out locks; this library takes them all the
 * same.
 */
#include "lib.h"

#include <stdlib.h>

static struct pd *make_pd(struct ibv_context *v, uint32_t handle)
{
	struct pd *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->v = (struct ibv_pd){v, handle};
	p->born = forks;
	return p;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *v)
{
	struct goroce_object r;
	struct pd *p;
	int err = ask(v, GOROCE_ALLOC_PD, NULL, 0, &r, sizeof(r));

	if (err)
		return fail(err);
	p = make_pd(v, r.handle);
	if (!p) {
		close_handle(v, GOROCE_KIND_PD, r.handle, NULL);
		return fail(ENOMEM);
	}
	return &p->v;
}

/* dealloc_parent_domain asks nobody: objects that were made with a parent domain are the protection domain's. */
static int dealloc_parent_domain(struct pd *p)
{
	atomic_fetch_sub(&p->parent->uses, 1);
	if (p->td)
		atomic_fetch_sub(&p->td->uses, 1);
	free(p);
	return 0;
}

/* ibv_dealloc_pd is EBUSY as long as there are parent domains of a protection domain, which the library counts, or
 * other objects in it, which the daemon does. */
EXPORT int ibv_dealloc_pd(struct ibv_pd *v)
{
	struct pd *p = pd_of(v);
	int err;

	if (p->parent)
		return dealloc_parent_domain(p);
	if (atomic_load(&p->uses))
		return EBUSY;
	err = close_object(v->context, p->born, GOROCE_KIND_PD, v->handle);
	if (!err)
		free(p);
	return err;
}

/* td_alloc makes an object of this process alone. It works in a child as in its parent, and notes no born. */
struct ibv_td *td_alloc(struct ibv_context *v, struct ibv_td_init_attr *attr)
{
	struct td *t;
	int why = ready(v);

	if (why || attr->comp_mask)
		return fail(why ? why : EOPNOTSUPP);
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->v.context = v;
	return &t->v;
}

int td_dealloc(struct ibv_td *v)
{
	struct td *t = container_of(v, struct td, v);

	if (atomic_load(&t->uses))
		return EBUSY;
	free(t);
	return 0;
}

/* parent_domain_alloc makes the protection domain known by another pointer, of which there cannot be a parent domain
 * again (EINVAL). Queues lie in memory that is shared with the daemon, so allocators are taken and have nothing to
 * do. */
struct ibv_pd *parent_domain_alloc(struct ibv_context *v, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct pd *p;
	int why = ready(v);

	if (why)
		return fail(why);
	if (attr->comp_mask & ~known)
		return fail(EOPNOTSUPP);
	if (!attr->pd || attr->pd->context != v || pd_of(attr->pd)->parent)
		return fail(EINVAL);
	why = pd_dead(attr->pd);
	if (why)
		return fail(why);
	p = make_pd(v, attr->pd->handle);
	if (!p)
		return NULL;
	p->parent = pd_of(attr->pd);
	atomic_fetch_add(&p->parent->uses, 1);
	if (attr->td) {
		p->td = container_of(attr->td, struct td, v);
		atomic_fetch_add(&p->td->uses, 1);
	}
	return &p->v;
}
