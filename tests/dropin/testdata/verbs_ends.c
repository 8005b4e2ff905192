/* What is closed while threads wait for its events, or while others close what it belongs to. */
#include "verbs_common.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static int rounds;
static atomic_int tid;

/* asleep waits until the thread that has set tid sleeps. */
static void asleep(void)
{
	char path[64], text[256], state;
	FILE *f;

	do {
		while (!atomic_load(&tid))
			sched_yield();
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&tid));
		MUST(f = fopen(path, "r"));
		MUST(fgets(text, sizeof(text), f) && sscanf(strrchr(text, ')'), ") %c", &state) == 1);
		fclose(f);
		sched_yield();
	} while (state != 'S');
	atomic_store(&tid, 0);
}

static void *async_waiter(void *unused)
{
	struct ibv_async_event e;

	(void)unused;
	atomic_store(&tid, gettid());
	FAILS(EBADF, !ibv_get_async_event(ctx, &e));
	return NULL;
}

/* async: whoever waits for events of a device that is closed is told EBADF, and has no event. */
static void async(void)
{
	pthread_t t;

	for (int i = 0; i < rounds; i++) {
		open_first();
		MUST(!pthread_create(&t, NULL, async_waiter, NULL));
		asleep();
		close_all();
		MUST(!pthread_join(t, NULL));
	}
}

static struct ibv_comp_channel *channel;

static void *completion_waiter(void *unused)
{
	struct ibv_cq *of;
	void *context;

	(void)unused;
	atomic_store(&tid, gettid());
	FAILS(EBADF, !ibv_get_cq_event(channel, &of, &context));
	return NULL;
}

/* completion: the same for a completion channel. */
static void completion(void)
{
	pthread_t t;

	open_first();
	for (int i = 0; i < rounds; i++) {
		MUST(channel = ibv_create_comp_channel(ctx));
		MUST(!pthread_create(&t, NULL, completion_waiter, NULL));
		asleep();
		IS(0, ibv_destroy_comp_channel(channel));
		MUST(!pthread_join(t, NULL));
	}
	close_all();
}

static void *destroyer(void *of)
{
	IS(0, ibv_destroy_cq(of));
	return NULL;
}

/* reference: a channel is destroyed as soon as its last CQ has given it up. */
static void reference(void)
{
	struct ibv_cq *of;
	pthread_t t;
	int err;

	open_first();
	for (int i = 0; i < rounds; i++) {
		MUST(channel = ibv_create_comp_channel(ctx));
		MUST(of = ibv_create_cq(ctx, 1, NULL, channel, 0));
		MUST(!pthread_create(&t, NULL, destroyer, of));
		while ((err = ibv_destroy_comp_channel(channel)))
			MUST(err == EBUSY);
		MUST(!pthread_join(t, NULL));
	}
	close_all();
}

static int number; /* of the channel's descriptor, and then of a socket of the program's */

/* destroy gives the channel's number to a socket with something to read, so that the wait that goes on finds that. */
static void destroy(int signal)
{
	int pair[2];

	(void)signal;
	number = channel->fd;
	IS(0, ibv_destroy_comp_channel(channel));
	MUST(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	MUST(pair[0] == number || dup2(pair[0], number) == number);
	MUST(write(pair[1], "", 1) == 1);
}

static void *interrupter(void *of)
{
	asleep();
	MUST(!pthread_kill(*(pthread_t *)of, SIGUSR1));
	return NULL;
}

/* handler: a signal handler destroys the channel for which the interrupted thread waits. What has the number afterwards
 * is the program's, and its children have it. */
static void handler(void)
{
	pthread_t self = pthread_self(), t;
	pid_t child;
	int status;

	open_first();
	MUST(signal(SIGUSR1, destroy) != SIG_ERR);
	MUST(channel = ibv_create_comp_channel(ctx));
	MUST(!pthread_create(&t, NULL, interrupter, &self));
	completion_waiter(NULL);
	MUST(!pthread_join(t, NULL));
	MUST((child = fork()) >= 0);
	if (!child)
		_exit(fcntl(number, F_GETFD) < 0);
	MUST(waitpid(child, &status, 0) == child);
	IS(0, status);
	close_all();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"async", async}, {"completion", completion}, {"reference", reference}, {"handler", handler}};

	MUST(argc == 3 && (rounds = atoi(argv[2])) > 0);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!strcmp(argv[1], parts[i].name)) {
			parts[i].run();
			return 0;
		}
	}
	return 2;
}
