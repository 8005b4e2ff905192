/*
 * The calls that librdmacm makes on a channel's descriptor, and on the kernel's RDMA devices.
 *
 * Netlink would answer with the kernel's devices, and with their number of rdma_cm's character device: librdmacm
 * would mix them with those of the daemon, or refuse the descriptor. Without netlink it reads the ABI's version in
 * sysfs, which is the daemon's tree, and compares nothing but that what it has opened is a character device
 * (open_cdev).
 *
 * Every call of the program's comes here. Until there is a channel in the process, one to libc costs a load of a flag
 * more than without this library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cm.h"
#include "sys.h"

/* write to a channel is a command; it returns the whole length, as ucma_write does, or -1 with errno. */
EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	int err;

	if (!cm_used() || !cm_is_channel(fd))
		return NEXT(write)(fd, buf, len);
	err = cm_run(fd, buf, len);
	if (err) {
		errno = err;
		return -1;
	}
	return (ssize_t)len;
}

/* A channel may come from another process, in a message: from then on write must look for it. */
EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = NEXT(recvmsg)(fd, msg, flags);

	if (n >= 0 && msg->msg_controllen && !cm_used())
		cm_received(msg);
	return n;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags, struct timespec *timeout)
{
	int n = NEXT(recvmmsg)(fd, msgs, count, flags, timeout);

	for (int i = 0; i < n && !cm_used(); i++)
		cm_received(&msgs[i].msg_hdr);
	return n;
}

EXPORT int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return NEXT(socket)(domain, type, protocol);
}

/* A channel is a character device for who looks: that of the link in the tree, /dev/null. */
#define LOOK(ret, fd, st) \
	({ \
		int ret_ = (ret); \
		if (ret_ == 0 && cm_used() && S_ISSOCK((st)->st_mode) && cm_is_channel(fd)) { \
			(st)->st_mode = S_IFCHR | 0666; \
			(st)->st_rdev = makedev(1, 3); \
		} \
		ret_; \
	})

#define DEFINE_FSTAT(name, type) \
	EXPORT int name(int fd, type *st) \
	{ \
		return LOOK(NEXT(name)(fd, st), fd, st); \
	}

#define DEFINE_FXSTAT(name, type) \
	extern int name(int version, int fd, type *st); \
	EXPORT int name(int version, int fd, type *st) \
	{ \
		return LOOK(NEXT(name)(version, fd, st), fd, st); \
	}

DEFINE_FSTAT(fstat, struct stat)
#ifdef __GLIBC__
DEFINE_FSTAT(fstat64, struct stat64)
DEFINE_FXSTAT(__fxstat, struct stat)
DEFINE_FXSTAT(__fxstat64, struct stat64)
#endif
