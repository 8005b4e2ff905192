/*
 * Memory that the daemon shares, of rings and doorbells: a memfd that is made and mapped here. The daemon lets nobody
 * map it for writing once it has it, so that nobody can take pages of it away. So the order is: make it, seal it
 * against becoming shorter, map it, send it, close the descriptor. The mapping is all that stays here.
 */
#include "lib.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* make returns a memfd of size bytes that stays as long, or -1 with errno. The daemon takes no other, as it would
 * fault behind the end of one that has become shorter. */
static int make(uint64_t size)
{
	struct rlimit limit;
	int fd, err;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && size > limit.rlim_cur) { /* ftruncate would raise SIGXFSZ */
		errno = EFBIG;
		return -1;
	}
	fd = memfd_create("goroce-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* shared_make makes size bytes, which may be 0: then there is no memory, as for a QP without queues. No child gets
 * the pages, by which it could make requests: a fork waits from before the descriptor is there until the pages are
 * marked. */
static int shared_make(struct shared *s, uint64_t size)
{
	void *p = MAP_FAILED;
	int err;

	*s = (struct shared){.size = size, .fd = -1, .born = forks};
	if (!size)
		return 0;
	fds_begin();
	s->fd = fds_add(make(size));
	if (s->fd >= 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	err = p == MAP_FAILED ? errno : 0;
	if (!err)
		syscall(SYS_madvise, p, size, MADV_DONTFORK); /* no mark of the program's (../sys/advice.c) */
	fds_end();
	if (err) {
		fds_close(s->fd);
		return err;
	}
	s->at = p;
	return 0;
}

/* shared_call sends a request along with size bytes of new memory, which are the caller's if it returns 0. Otherwise
 * they are unmapped, and s has none. The descriptor is closed in both cases: whoever has it could read what is in the
 * rings. */
int shared_call(struct control *control, struct call *call, uint64_t size, struct shared *s)
{
	int cancel, err;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* the memory must not be left behind */
	err = shared_make(s, size);
	if (err) {
		debug("request %u: memory of %ju bytes: %s", call->op, (uintmax_t)size, strerror(err));
	} else {
		call->give = s->fd;
		err = control_call(control, call);
		fds_close(s->fd);
		s->fd = -1;
		if (err)
			shared_free(s);
	}
	pthread_setcancelstate(cancel, NULL);
	return err ? failed(err) : 0;
}

/* with_rings has the kinds of objects that requests about rings make or change. */
static const uint32_t with_rings[] = {
	[GOROCE_CREATE_CQ] = GOROCE_KIND_CQ, [GOROCE_RESIZE_CQ] = GOROCE_KIND_CQ, [GOROCE_CREATE_SRQ] = GOROCE_KIND_SRQ,
	[GOROCE_MODIFY_SRQ] = GOROCE_KIND_SRQ, [GOROCE_CREATE_QP] = GOROCE_KIND_QP,
};

/* shared_rings is shared_call for a request about rings, which lie in that memory. EPROTO if the daemon claims that
 * they are longer than the memory: the object that it has made, or changed, is closed then, as it cannot be used. */
int shared_rings(struct ibv_context *v, uint16_t op, const void *body, size_t len, uint64_t size, struct goroce_ring *r,
		 struct shared *s)
{
	struct call call = {.op = op, .body = body, .len = len, .reply = r, .size = sizeof(*r)};
	int err = ready(v);

	if (!err)
		err = no_object(shared_call(&context_of(v)->control, &call, size, s));
	if (!err && (r->size > s->size || r->send > r->size || r->recv > r->size - r->send)) {
		shared_free(s);
		close_handle(v, with_rings[op], r->handle, NULL);
		return EPROTO;
	}
	return err;
}

/* shared_free unmaps the memory; in a child the parent's was never mapped. Callers see to it that no thread is about
 * to look at it: they hold the ring's lock, or the object is gone. It may be called again. */
void shared_free(struct shared *s)
{
	if (s->at && !inherited(s->born))
		munmap(s->at, s->size);
	s->at = NULL;
}
