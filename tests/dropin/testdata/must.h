/* must.h - how the programs of these tests say what does not hold, and end. */
#ifndef MUST_H
#define MUST_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MUST(cond)                                                                              \
	do {                                                                                    \
		if (!(cond)) {                                                                  \
			fprintf(stderr, "%s:%d: not so: %s (%m)\n", __FILE__, __LINE__, #cond); \
			_exit(1);                                                               \
		}                                                                               \
	} while (0)
/* A call that returns an error. */
#define IS(want, call)                                                                                      \
	do {                                                                                                \
		int got_ = (call);                                                                          \
		if (got_ != (want)) {                                                                       \
			fprintf(stderr, "%s:%d: %s is %d (%s), want %d\n", __FILE__, __LINE__, #call, got_, \
				strerror(got_), want);                                                      \
			_exit(1);                                                                           \
		}                                                                                           \
	} while (0)
/* A verb that returns an error, and sets errno as ioctl(2) of the kernel's verbs does. */
#define REFUSED(want, call)                                                                                 \
	do {                                                                                                \
		errno = 0;                                                                                  \
		IS(want, call);                                                                             \
		IS(want, errno);                                                                            \
	} while (0)
/* A call that returns NULL, or false, and sets errno. */
#define FAILS(want, call) IS(want, (call) ? 0 : errno)

#endif
