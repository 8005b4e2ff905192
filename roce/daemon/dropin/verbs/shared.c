/* Memory that the daemon shares: a memfd that it cannot make smaller any more. */
#include "lib.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that shrinks ends the process that reads behind its end (SIGBUS). */
static int check(int fd, uint64_t size)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0)
		return EPROTO;
	return size && st.st_size > 0 && size <= (uint64_t)st.st_size ? 0 : EPROTO;
}

/* shared_map maps a memfd, and closes the descriptor. Forked children do not get the pages. */
int shared_map(int fd, uint64_t size, void **at)
{
	int cancel, err = check(fd, size);
	void *p = MAP_FAILED;

	if (!err) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		err = p == MAP_FAILED ? errno : 0;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* close must not end a thread that holds a lock */
	close(fd);
	pthread_setcancelstate(cancel, NULL);
	if (err)
		return err;
	madvise(p, size, MADV_DONTFORK);
	*at = p;
	return 0;
}

void shared_unmap(void *at, size_t size)
{
	if (at)
		munmap(at, size);
}
