/*
 * Pages that other threads use are moved all the same, where userfaultfd(2) can make them wait: the kernel moves the
 * pages to another address (UFFDIO_MOVE, Linux 6.8), and whoever touches the old one from then on, the program or the
 * kernel in a system call of its, waits until it is woken. So nobody stores into a page while it is copied. The kernel
 * does not move pages that are pinned, as those of direct I/O under way are.
 *
 * That takes a userfaultfd that also sees faults of the kernel: the right to ptrace any process (CAP_SYS_PTRACE),
 * vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd. One without would let system calls fail with EFAULT.
 *
 * Between freeze and thaw, or freeze_end, nothing may be called that takes a lock which other threads take, not even
 * malloc: one of them may wait for these pages with that lock.
 */
#include "lib.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As linux/userfaultfd.h has it from Linux 6.8 on: older headers do not declare it. */
struct move {
	uint64_t dst, src, len, mode;
	int64_t moved; /* bytes, or a negative errno */
};

enum { ALLOW_HOLES = 2, FEATURE_MOVE = 1 << 16 };

#define MOVE _IOWR(UFFDIO, 0x05, struct move)
#ifndef USERFAULTFD_IOC_NEW /* Linux 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

/* by_device opens a userfaultfd by the device, whose owner decides who may have one. */
static int by_device(void)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), fd;

	if (dev < 0)
		return -1;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(dev);
	return fd;
}

/* open_fd returns a userfaultfd that moves pages; -1 if there is none. No child may have it. */
static int open_fd(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_MOVE};
	int fd;

	fds_begin();
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = by_device();
	fd = fds_add(fd);
	fds_end();
	if (fd < 0 || !ioctl(fd, UFFDIO_API, &api))
		return fd;
	fds_close(fd);
	return -1;
}

/* can_freeze reports whether freeze may succeed. */
bool can_freeze(void)
{
	int fd = open_fd();

	fds_close(fd);
	return fd >= 0;
}

static bool watch(int fd, const void *at, size_t len)
{
	struct uffdio_register r = {{(uintptr_t)at, len}, .mode = UFFDIO_REGISTER_MODE_MISSING};

	return !ioctl(fd, UFFDIO_REGISTER, &r);
}

/* move_pages moves pages, and reports whether all have gone. *done counts those that have. The kernel asks to try again
 * (EAGAIN) where it has met a change of the mappings, or the lock of a page. */
static bool move_pages(int fd, void *to, const void *from, size_t len, size_t *done)
{
	const int most = 100000; /* tries without a page */

	*done = 0;
	for (int tries = 0; *done < len && tries < most; tries++) {
		struct move m = {(uintptr_t)to + *done, (uintptr_t)from + *done, len - *done, ALLOW_HOLES, 0};
		if (ioctl(fd, MOVE, &m) && (m.moved < 0 ? m.moved != -EAGAIN : errno != EAGAIN))
			return false;
		if (m.moved > 0) {
			*done += (size_t)m.moved;
			tries = 0;
		}
	}
	return *done == len;
}

/* freeze moves pages away, so that f->at has them and others wait for them. It returns false if it cannot, and then all
 * is as it was. */
bool freeze(struct frozen *f, void *from, size_t len)
{
	struct uffdio_range moved;

	*f = (struct frozen){.fd = open_fd(), .from = from, .len = len};
	if (f->fd < 0)
		return false;
	f->at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = (struct uffdio_range){(uintptr_t)f->at, len};
	/* Who reads a page there that was never stored into must not wait: that is this thread. */
	if (f->at != MAP_FAILED && watch(f->fd, f->at, len) && watch(f->fd, from, len) &&
			move_pages(f->fd, f->at, from, len, &f->moved) && !ioctl(f->fd, UFFDIO_UNREGISTER, &moved))
		return true;
	thaw(f);
	return false;
}

/* thaw puts pages back where they were. Nothing is in the way, as nobody else can make pages there. The program cannot
 * go on without its memory. */
void thaw(struct frozen *f)
{
	size_t done;

	if (!move_pages(f->fd, f->from, f->at, f->moved, &done)) {
		fprintf(stderr, "goroce: memory at %p is lost (%s)\n", f->from, strerror(errno));
		abort();
	}
	freeze_end(f);
}

/* freeze_end wakes who waits, and then forgets the pages that were moved away: one of those who wait may have the lock of
 * fds.c. */
void freeze_end(struct frozen *f)
{
	struct uffdio_range all = {(uintptr_t)f->from, f->len};

	ioctl(f->fd, UFFDIO_UNREGISTER, &all);
	ioctl(f->fd, UFFDIO_WAKE, &all);
	fds_close(f->fd);
	if (f->at != MAP_FAILED)
		munmap(f->at, f->len);
}
