/*
 * Memory regions. The daemon maps memory that is shared from a file which it can have, too (share.c), or has been
 * moved to one (remap.c). All other memory it reads and writes by system calls. Each registration tries the faster
 * ways first, and falls back if the daemon refuses; docs/dropin.md ("Fast memory") says what of this programs can
 * see.
 *
 * This process pins nothing. Pages are populated at the registration, so that memory which is not there is refused
 * then.
 */
#include "lib.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* All of the address space, for implicit registration on demand: 47 bits of amd64, 48 of arm64. Beyond there is only what
 * a program maps by a hint. A region cannot be larger (max_mr_size). */
static const uint64_t whole = 1ull << 48;

/* Rights of IBTA 10.6.3.1; the rest are hints of how the memory is made up. */
static const uint32_t rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_FLUSH_GLOBAL |
	IBV_ACCESS_FLUSH_PERSISTENT;
static const uint32_t writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
static const uint32_t hints = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

/* ibv_advise_mr_advice. */
enum advice { PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT };

/* mr_access returns the rights among access. */
uint32_t mr_access(unsigned int access) { return access & ~hints; }

/* open_memory opens this process's memory. The daemon knows that of the first thread by its inode (procmem.Bind). Once the
 * thread has ended it is empty, or cannot be opened, as the kernel has it. Then that of this thread is opened, which the
 * daemon takes from a process that has a procfs of its own, as in a container. */
static int open_memory(void)
{
	char byte = 0;
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && pread(fd, &byte, 1, (off_t)(uintptr_t)&byte) == 1)
		return fd;
	if (fd >= 0)
		close(fd);
	return open("/proc/thread-self/mem", O_RDWR | O_CLOEXEC);
}

/* own_memory returns a descriptor of this process's memory, by which a daemon that may not ptrace the process can
 * access it; -1 if it cannot be opened (PR_SET_DUMPABLE). It is closed when the daemon has answered: whoever has it has
 * all of the memory. */
static int own_memory(void)
{
	int fd;

	fds_begin();
	fd = fds_add(open_memory());
	fds_end();
	return fd;
}

/* mapped returns EFAULT if a part of [from, to) is not mapped, or not for reading, or, with write, not for writing. */
static int mapped(uintptr_t from, uintptr_t to, bool write)
{
	struct mapping map;
	struct maps maps;

	if (!maps_open(&maps))
		return 0; /* as nothing is known, the first access shows it */
	while (from < to && maps_find(&maps, from, &map) && map.readable && (map.writable || !write))
		from = map.end;
	maps_close(&maps);
	return from < to ? EFAULT : 0;
}

/*
 * check faults the pages in, as an RNIC's driver does when it pins them: EFAULT if they are not there, or not
 * writable; EINVAL if the range wraps. Memory that is registered on demand need not be there yet.
 *
 * madvise returns EINVAL where a mapping has not the rights, for special mappings such as a device's, and for all
 * before Linux 5.14, which does not know the advice. Then the rights of the mappings decide, and no page is faulted
 * in.
 */
static int check(const void *addr, size_t length, unsigned int access)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1), to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);
	bool write = access & writes;

	if (!length || access & IBV_ACCESS_ON_DEMAND)
		return 0;
	if ((uintptr_t)addr + length < (uintptr_t)addr || to < from)
		return EINVAL;
	if (!madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno == ENOMEM || errno == EFAULT)
		return EFAULT;
	return mapped(from, to, write);
}

/*
 * describe fills in a request for memory at addr, which SGEs and peers call iova, and checks it. Rights to write for
 * peers need IBV_ACCESS_LOCAL_WRITE, as in the kernel (ib_check_mr_access). Address NULL and length SIZE_MAX mean all
 * memory of the process, on demand (implicit ODP, ibv_reg_mr(3)). IBV_ACCESS_ZERO_BASED works here, where rdma_rxe
 * refuses it.
 */
static int describe(struct goroce_reg_mr *r, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (access & ~(rights | hints) || access & IBV_ACCESS_FLUSH_PERSISTENT) /* no memory here is persistent */
		return EINVAL;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (!addr && length == SIZE_MAX && access & IBV_ACCESS_ON_DEMAND)
		length = whole;
	r->access = mr_access(access);
	r->kind = GOROCE_PROCESS;
	r->addr = (uintptr_t)addr;
	r->length = length;
	r->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	return check(addr, length, access);
}

/* A request to register memory, or to register it anew. */
struct request {
	struct ibv_context *v;
	uint16_t op;
	void *body;
	size_t len;
	struct goroce_reg_mr *memory; /* in body; memory of the process */
	struct goroce_reg_reply reply;
	struct share *share; /* the file, if the daemon maps the memory */
	struct moved *moved; /* the memory was moved for that */
};

static int request(struct request *q, int give)
{
	struct call call = {
		.op = q->op, .body = q->body, .len = q->len, .give = give, .reply = &q->reply, .size = sizeof(q->reply),
	};

	return context_call(q->v, &call);
}

/* request_file names the memory as part of a file that the daemon maps. Afterwards the request is again about memory
 * of the process, as which it is registered if the daemon refuses. */
static int request_file(struct request *q, uint64_t offset)
{
	const struct goroce_reg_mr process = *q->memory;
	int err;

	q->memory->kind = GOROCE_MEMFD;
	q->memory->file = q->share->handle;
	q->memory->addr = offset;
	err = request(q, -1);
	*q->memory = process;
	return err;
}

/* request_shared registers memory that is shared from a file, and that the daemon can map. It may refuse to: the file
 * may be too large for its limits, or another daemon may have been the first to map it. */
static int request_shared(struct request *q, unsigned int access)
{
	uintptr_t at = (uintptr_t)q->memory->addr;
	struct mapped_file f;
	int err;

	if (!q->memory->length || access & IBV_ACCESS_ON_DEMAND || !file_find(&f, (void *)at, q->memory->length))
		return ENOENT;
	err = shares_take(q->v, &f, at, &q->share);
	if (!err) {
		err = request_file(q, f.offset);
		if (err) {
			shares_give(q->v, forks, q->share);
			q->share = NULL;
		}
	}
	debug("memory at %#jx: file at %#jx: %s", (uintmax_t)at, (uintmax_t)f.offset, strerror(err));
	return err;
}

/* request_moved is request_shared, with memory of the process moved to a file before if that is possible (remap.c). */
static int request_moved(struct request *q, unsigned int access)
{
	uint32_t stays = GOROCE_STAYS_ON_DEMAND;
	int err;

	if (!(access & IBV_ACCESS_ON_DEMAND))
		q->moved = remap_begin(q->v, (void *)(uintptr_t)q->memory->addr, q->memory->length, &stays);
	err = request_shared(q, access);
	if (!err) {
		remap_shared(q->moved);
	} else {
		remap_end(q->moved);
		q->moved = NULL;
		q->memory->file = stays;
	}
	return err;
}

/* request_memory registers memory in the fastest way that the daemon allows. A thread that is cancelled on the way
 * would leave descriptors open, a file shared, or memory moved. */
static int request_memory(struct request *q, unsigned int access)
{
	int err, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	err = request_moved(q, access);
	if (err) {
		int memory = own_memory();
		err = request(q, memory);
		fds_close(memory);
	}
	pthread_setcancelstate(cancel, NULL);
	return err;
}

/* ibv_reg_mr_iova2 is what programs call whose access flags may have optional bits. L_Key and R_Key are one number,
 * as those of rdma_rxe. */
EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct goroce_reg_mr r = {.pd = pd->handle};
	struct request q = {.v = pd->context, .op = GOROCE_REG_MR, .body = &r, .len = sizeof(r), .memory = &r};
	struct mr *mr;
	int err = pd_dead(pd);

	if (!err)
		err = describe(&r, addr, length, iova, access);
	if (err)
		return fail(err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	err = request_memory(&q, access);
	if (err) {
		free(mr);
		return fail(err);
	}
	*mr = (struct mr){
		.v = {pd->context, pd, addr, length, q.reply.handle, q.reply.key, q.reply.key},
		.pd = pd->handle, .iova = r.iova, .own = !q.share && !(access & IBV_ACCESS_ON_DEMAND), .share = q.share,
		.moved = q.moved, .born = forks, .access = access,
	};
	regions_add(&context_of(pd->context)->regions, mr);
	return &mr->v;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

/*
 * ibv_dereg_mr asks the daemon first. It refuses with EBUSY while windows are bound to the region, and then nothing has
 * changed. When it has agreed, neither it nor a peer touches the memory any more. Only then can moved pages become
 * private again, as what would be written into the file meanwhile would be lost, and the file be given up.
 */
EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = close_object(mr->context, mr_of(mr)->born, GOROCE_KIND_MR, mr->handle);

	if (err)
		return err;
	regions_remove(&context_of(mr->context)->regions, mr_of(mr));
	remap_end(mr_of(mr)->moved);
	shares_give(mr->context, mr_of(mr)->born, mr_of(mr)->share);
	free(mr_of(mr));
	return 0;
}

/* rereg_done gives a region its new attributes, and ends what it had before of other memory. The daemon does not use
 * that any more. Posts look the region up anew after regions_change. */
static void rereg_done(struct mr *mr, const struct request *q, const struct mr *to, bool moves)
{
	struct moved *moved = mr->moved;
	struct share *share = mr->share;

	regions_change(&context_of(q->v)->regions, mr, to);
	if (moves) {
		remap_end(moved);
		shares_give(q->v, forks, share);
	}
}

/* refuse_rereg returns IBV_REREG_MR_ERR_INPUT for what libibverbs refuses itself, and IBV_REREG_MR_ERR_CMD for what the
 * kernel refuses. */
static int refuse_rereg(int code, int err)
{
	errno = err;
	return code;
}

/*
 * ibv_rereg_mr keeps the keys, as programs go on with those that they have told their peers. Arguments that flags
 * does not name may be anything: without new rights the memory is checked and registered by those that the region has.
 * Rights to write that it gets need memory that can be written, too.
 *
 * The changes are made in a copy, to, and become the region's when the daemon has agreed. So a region that is refused
 * stays as it was, though after IBV_REREG_MR_ERR_CMD programs must not count on that (ibv_rereg_mr(3)).
 */
EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	unsigned int has = mr_of(mr)->access, gets = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : has;
	struct goroce_rereg_mr r = {.mr = mr->handle, .mask = (uint32_t)flags | GOROCE_KEEP_KEYS};
	struct request q = {.v = mr->context, .op = GOROCE_REREG_MR, .body = &r, .len = sizeof(r), .memory = &r.to};
	struct mr to = *mr_of(mr);
	int err;

	if (flags & ~all || (moves && (!addr || !length)) || (flags & IBV_REREG_MR_CHANGE_PD && !pd))
		return refuse_rereg(IBV_REREG_MR_ERR_INPUT, EINVAL);
	if (!flags)
		return refuse_rereg(IBV_REREG_MR_ERR_CMD, EINVAL);
	if (inherited(mr_of(mr)->born) || (flags & IBV_REREG_MR_CHANGE_PD && inherited(pd_of(pd)->born)))
		return refuse_rereg(IBV_REREG_MR_ERR_CMD, ENODEV);
	err = describe(&r.to, moves ? addr : NULL, moves ? length : 0, (uintptr_t)addr, gets);
	if (!err && !moves && gets & ~has & writes)
		err = check(mr->addr, mr->length, gets);
	if (err)
		return refuse_rereg(IBV_REREG_MR_ERR_CMD, err);
	r.to.pd = flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0;
	err = request_memory(&q, gets);
	if (err)
		return refuse_rereg(IBV_REREG_MR_ERR_CMD, err);
	to.v.lkey = to.v.rkey = q.reply.key;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		to.v.pd = pd;
		to.pd = pd->handle;
	}
	if (moves) {
		to.v.addr = addr;
		to.v.length = length;
		to.iova = r.to.iova;
		to.own = !q.share;
		to.share = q.share;
		to.moved = q.moved;
	}
	if (gets & IBV_ACCESS_ON_DEMAND)
		to.own = false;
	to.access = gets;
	rereg_done(mr_of(mr), &q, &to, moves);
	return 0;
}

/* advise_sge populates what a scatter-gather element names. Errors are those of ibv_advise_mr(3). It works on a copy
 * of the region, which another thread may deregister meanwhile. */
static int advise_sge(const struct ibv_pd *pd, enum advice advice, const struct ibv_sge *e)
{
	bool write = advice == PREFETCH_WRITE;
	struct mr m;
	uint64_t at;

	if (!regions_copy(&context_of(pd->context)->regions, e->lkey, &m))
		return EFAULT;
	if (m.pd != pd->handle || (write && !(m.access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	if (!(m.access & IBV_ACCESS_ON_DEMAND))
		return EINVAL;
	at = e->addr - m.iova;
	if (e->addr < m.iova || at > m.v.length || e->length > m.v.length - at)
		return EFAULT;
	if (advice == PREFETCH_NO_FAULT)
		return 0;
	return check((char *)m.v.addr + at, e->length, write ? IBV_ACCESS_LOCAL_WRITE : 0);
}

/* mr_advise populates before it returns, with IBV_ADVISE_MR_FLAG_FLUSH and without. The first element that is refused
 * ends it; the ones before are populated. No request goes to the daemon. */
int mr_advise(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sg_list, uint32_t num_sge)
{
	enum { FLUSH = 1 };
	int err = pd_dead(pd);

	if (err)
		return err;
	if (advice < PREFETCH || advice > PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	if (flags & ~(uint32_t)FLUSH || !num_sge || !sg_list)
		return EINVAL;
	for (uint32_t i = 0; i < num_sge && !err; i++)
		err = advise_sge(pd, (enum advice)advice, &sg_list[i]);
	return err;
}
