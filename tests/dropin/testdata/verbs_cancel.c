/*
 * Threads that are cancelled in the library: `verbs_cancel CASE` ends with status 0 if no lock stays locked. Each
 * thread cancels itself and then calls the library: the next cancellation point would end it.
 */
#include "verbs_common.h"

#include <sys/syscall.h>
#include <time.h>

static atomic_bool rung;     /* a doorbell woke the daemon */
static atomic_bool returned; /* the call did */

/* write is the library's, which wakes the daemon. It is a cancellation point, as libc's is. */
ssize_t write(int fd, const void *from, size_t n)
{
	pthread_testcancel();
	atomic_store(&rung, true);
	return syscall(SYS_write, fd, from, n);
}

static void run_cancelled(void *(*f)(void *), void *arg)
{
	pthread_t thread;
	void *result;

	MUST(!pthread_create(&thread, NULL, f, arg));
	MUST(!pthread_join(thread, &result));
	MUST(result == PTHREAD_CANCELED);
}

/* Posts until the daemon had to be woken, with longer and longer rests. Only the posts can be cancelled. */
static void *post_until_rung(void *qp)
{
	struct timespec rest = {.tv_nsec = 1000};
	int cancel;

	MUST(!pthread_cancel(pthread_self()));
	while (!atomic_load(&rung)) {
		write_once(qp);
		MUST(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel));
		wait_wc(cq, IBV_WC_SUCCESS);
		nanosleep(&rest, NULL);
		if (rest.tv_nsec < 100000000)
			rest.tv_nsec *= 2;
		MUST(!pthread_setcancelstate(cancel, NULL));
	}
	atomic_store(&returned, true);
	pthread_testcancel();
	return NULL;
}

static void posting(void)
{
	struct ibv_qp *qp;

	open_first();
	qp = loop(cq);
	run_cancelled(post_until_rung, qp);
	MUST(atomic_load(&returned));
	write_once(qp);
	wait_wc(cq, IBV_WC_SUCCESS);
	IS(0, ibv_destroy_qp(qp));
	close_all();
}

static struct ibv_cq *made;

static void *create_cq(void *arg __attribute__((unused)))
{
	MUST(!pthread_cancel(pthread_self()));
	MUST(made = ibv_create_cq(ctx, 4, NULL, NULL, 0));
	atomic_store(&returned, true);
	pthread_testcancel();
	return NULL;
}

static void creating(void)
{
	open_first();
	run_cancelled(create_cq, NULL);
	MUST(atomic_load(&returned));
	IS(0, ibv_destroy_cq(made));
	close_all();
}

static void *destroy_cq(void *of)
{
	MUST(!pthread_cancel(pthread_self()));
	IS(0, ibv_destroy_cq(of));
	atomic_store(&returned, true);
	pthread_testcancel();
	return NULL;
}

/* A CQ with an event that nobody has taken. */
static void destroying(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *of, *got;
	struct ibv_qp *qp;
	void *context;

	open_first();
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(of = ibv_create_cq(ctx, 4, NULL, channel, 0));
	qp = loop(of);
	IS(0, ibv_req_notify_cq(of, 0));
	write_once(qp);
	wait_wc(of, IBV_WC_SUCCESS);
	while (!readable(channel->fd))
		;
	IS(0, ibv_destroy_qp(qp));
	run_cancelled(destroy_cq, of);
	MUST(atomic_load(&returned));
	MUST(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	IS(-1, ibv_get_cq_event(channel, &got, &context));
	IS(EAGAIN, errno);
	IS(0, ibv_destroy_comp_channel(channel));
	close_all();
}

static void *open_channel(void *arg __attribute__((unused)))
{
	MUST(!pthread_cancel(pthread_self()));
	open("/dev/infiniband/rdma_cm", O_RDWR); /* after it has connected, it may be cancelled */
	pthread_testcancel();
	return NULL;
}

/* The process's first channel of rdma_cm connects to the daemon. */
static void opening(void)
{
	run_cancelled(open_channel, NULL);
	MUST(open("/dev/infiniband/rdma_cm", O_RDWR) >= 0);
}

int main(int argc, char **argv)
{
	MUST(argc == 2);
	if (!strcmp(argv[1], "posting"))
		posting();
	else if (!strcmp(argv[1], "creating"))
		creating();
	else if (!strcmp(argv[1], "destroying"))
		destroying();
	else if (!strcmp(argv[1], "opening"))
		opening();
	else
		return 2;
	return 0;
}
