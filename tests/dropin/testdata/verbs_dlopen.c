/* Uses libibverbs as NCCL does: by dlopen with RTLD_LOCAL, and names with their versions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static void *library;

static void *find(const char *name, const char *version)
{
	void *p = dlvsym(library, name, version);

	if (!p)
		fprintf(stderr, "%s\n", dlerror());
	return p;
}

int main(void)
{
	struct ibv_device **(*list)(int *), **all;
	struct ibv_context *(*open)(struct ibv_device *), *ctx;
	int (*close)(struct ibv_context *), (*device)(struct ibv_context *, struct ibv_device_attr *), n;
	const char *(*name)(struct ibv_device *);
	void (*release)(struct ibv_device **);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	void *(*make)(void);
	struct verbs_context *extended;

	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (!(list = find("ibv_get_device_list", "IBVERBS_1.1")) || !(open = find("ibv_open_device", "IBVERBS_1.1")) ||
	    !(close = find("ibv_close_device", "IBVERBS_1.1")) || !(device = find("ibv_query_device", "IBVERBS_1.1")) ||
	    !(name = find("ibv_get_device_name", "IBVERBS_1.1")) || !find("ibv_query_ece", "IBVERBS_1.10") ||
	    !(release = find("ibv_free_device_list", "IBVERBS_1.1")) || !find("ibv_reg_mr_iova2", "IBVERBS_1.8"))
		return 1;
	if (!(make = find("_verbs_init_and_alloc_context", "IBVERBS_PRIVATE_34")) || make() || errno != EOPNOTSUPP)
		return 1; /* what only providers call makes no object */
	all = list(&n);
	if (!all || n != 1 || !(ctx = open(all[0])))
		return 1;
	/* ibv_query_port is inline, and calls what the context has. */
	if (device(ctx, &attr) || !(extended = verbs_get_ctx_op(ctx, query_port)) ||
	    extended->query_port(ctx, 1, &port, sizeof(port)))
		return 1;
	printf("%s: %d QPs, port state %d\n", name(all[0]), attr.max_qp, port.state);
	release(all);
	if (close(ctx))
		return 1;
	return dlclose(library);
}
