/* fails.h - calls of the C library that fail, one at a time, and the requests that they are made for. */
#ifndef FAILS_H
#define FAILS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static __thread int left; /* calls until one fails; 0 if none does */
static const char *failing;
static int fault; /* the call that fails, from 1 */

static bool fails(const char *name, int err)
{
	if (!left || --left)
		return false;
	failing = name;
	errno = err;
	return true;
}

static void arm(void)
{
	errno = 0;
	failing = NULL;
	left = fault;
}

static void disarm(void) { left = 0; }

/* lose drops a message of n bytes, or its descriptors if it has some, as if there were no room for them. */
static ssize_t lose(struct msghdr *msg, ssize_t n)
{
	if (!msg->msg_controllen)
		return -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		for (int *one = (int *)CMSG_DATA(h); (char *)one < (char *)h + h->cmsg_len; one++)
			close(*one);
	}
	msg->msg_controllen = 0;
	msg->msg_flags |= MSG_CTRUNC;
	return n;
}

/* The requests to the daemon that were made while calls might fail: docs/abi.md has their numbers. */
static bool requests[1 << 16];

static void note(const struct msghdr *msg)
{
	uint16_t op;

	if (!left || !msg->msg_iovlen || msg->msg_iov->iov_len < sizeof(op))
		return;
	memcpy(&op, msg->msg_iov->iov_base, sizeof(op));
	requests[op] = true;
}

static void print_requests(void)
{
	printf("requests:");
	for (int i = 0; i < 1 << 16; i++) {
		if (requests[i])
			printf(" %d", i);
	}
	puts("");
}

#endif
