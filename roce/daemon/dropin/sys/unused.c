/*
 * The program of `goroced run` says at its end that nothing has used RDMA, which
 * otherwise looks as if it had. See ../client/used.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../client/client.h"
#include "sys.h"

static void (*next_exit)(int); /* libc's; NULL before the constructor has run */
static struct stat messages;   /* what the descriptor 2 was when the program began */

/* is_first reports whether this process is the one that run has become, and not one that it has started. */
static bool is_first(void)
{
	const char *unused = secure_getenv("GOROCE_RUN");
	const char *pid = unused ? strrchr(unused, '.') : NULL;

	return pid && strtol(pid + 1, NULL, 10) == getpid();
}

/* alone reports whether no child runs that could use RDMA yet, such as a daemon or a job in the background. */
static bool alone(void)
{
	siginfo_t child;

	return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

__attribute__((constructor)) static void began(void)
{
	next_exit = (void (*)(int))dlsym(RTLD_NEXT, "_exit"); /* in a child after fork dlsym may wait for ever */
	if (is_first() && fstat(STDERR_FILENO, &messages) < 0)
		messages.st_ino = 0;
}

/* ends says it, once, unless the descriptor 2 is another file by now. used() removes the file, and says whether it
 * was there yet: only who removes it prints the line. */
static void ends(void)
{
	struct stat now;
	char line[256];
	int n;

	if (!is_first() || quiet() || !alone() || !used() || fstat(STDERR_FILENO, &now) < 0 ||
	    now.st_ino != messages.st_ino || now.st_dev != messages.st_dev)
		return;
	n = snprintf(line, sizeof(line), "goroced: run: %.100s opened no RDMA device: neither it nor what it started has "
		     "used libibverbs or librdmacm\n", program_invocation_short_name);
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nobody is there to be told */
}

__attribute__((destructor)) static void ended(void) { ends(); }

/* Shells end by _exit, without destructors. */
EXPORT void _exit(int status)
{
	ends();
	if (next_exit)
		next_exit(status);
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORT void _Exit(int status) { _exit(status); }
