/*
 * Children that are forked while another thread has the library make descriptors: verbs_born greeting, against a daemon
 * that does not answer, and verbs_born making N, with N children. None has a descriptor or a mapping of the library's.
 */
#include "verbs_common.h"

#include <sched.h>
#include <sys/socket.h>

enum { FIRST = 3, LAST = 255, THREADS = 3 };

static bool had[LAST + 1]; /* before the library was used */

/* is_ours reports whether a descriptor is of a kind that the library makes. */
static bool is_ours(int fd)
{
	static const char *const kinds[] = {"socket:", "anon_inode:[eventfd]", "/memfd:goroce-", "/proc/"};
	char path[64], to[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, to, sizeof(to) - 1);
	if (had[fd] || n < 0)
		return false;
	to[n] = 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strncmp(to, kinds[i], strlen(kinds[i])))
			return true;
	}
	return false;
}

static int any_of_ours(void)
{
	for (int fd = FIRST; fd <= LAST; fd++) {
		if (is_ours(fd))
			return fd;
	}
	return -1;
}

static bool maps_ours(void)
{
	static char maps[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	MUST(fd >= 0);
	while ((n = read(fd, maps + len, sizeof(maps) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	maps[len] = 0;
	return strstr(maps, "/memfd:goroce-") != NULL;
}

/* bear forks a child, which looks at what it has. */
static void bear(void)
{
	pid_t child = fork();
	int status;

	MUST(child >= 0);
	if (!child) {
		IS(-1, any_of_ours());
		MUST(!maps_ours());
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child);
	IS(0, status);
}

static void *list(void *arg)
{
	(void)arg;
	ibv_get_device_list(NULL);
	return NULL;
}

static void greeting(void)
{
	pthread_t thread;

	MUST(!pthread_create(&thread, NULL, list, NULL));
	while (any_of_ours() < 0)
		sched_yield();
	bear();
}

static atomic_bool done;

/* make makes all that has descriptors, and closes it. */
static void *make(void *arg)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	static char memory[4096];

	(void)arg;
	MUST(all && all[0]);
	while (!atomic_load(&done)) {
		struct ibv_context *c = ibv_open_device(all[0]);
		struct ibv_pd *domain;
		struct ibv_mr *region;
		struct ibv_cq *queue;
		struct ibv_comp_channel *channel;
		MUST(c && (domain = ibv_alloc_pd(c)) && (region = ibv_reg_mr(domain, memory, sizeof(memory), 0)) &&
		     (queue = ibv_create_cq(c, 1, NULL, NULL, 0)) && (channel = ibv_create_comp_channel(c)));
		IS(0, ibv_destroy_comp_channel(channel));
		IS(0, ibv_destroy_cq(queue));
		IS(0, ibv_dereg_mr(region));
		IS(0, ibv_dealloc_pd(domain));
		IS(0, ibv_close_device(c));
	}
	ibv_free_device_list(all);
	return NULL;
}

static void making(int children)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		MUST(!pthread_create(&threads[i], NULL, make, NULL));
	for (int i = 0; i < children; i++)
		bear();
	atomic_store(&done, true);
	for (int i = 0; i < THREADS; i++)
		MUST(!pthread_join(threads[i], NULL));
}

int main(int argc, char **argv)
{
	MUST(argc >= 2);
	for (int fd = FIRST; fd <= LAST; fd++)
		had[fd] = is_ours(fd);
	if (!strcmp(argv[1], "greeting"))
		greeting();
	else
		making(atoi(argv[2]));
	_exit(0);
}
