/*
 * Whether a program that `goroced run` has started uses RDMA at all. run makes an
 * empty file, PLACE/unused.PID, and names it in GOROCE_RUN. The program has the number
 * PID, and keeps it whatever it executes. The first use of a device, in it or in any
 * process that it starts, removes the file. A file needs no descriptor, which many
 * programs close for their children.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* used removes the file. It may be called anywhere, any number of times. */
bool used(void)
{
	static bool known; /* that it is not there; a child inherits that */
	const char *unused;
	int saved = errno;
	bool removed = false;

	if (!__atomic_exchange_n(&known, true, __ATOMIC_RELAXED)) {
		unused = secure_getenv("GOROCE_RUN");
		removed = unused && unlink(unused) == 0;
	}
	errno = saved;
	return removed;
}
