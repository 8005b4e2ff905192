/*
 * GOROCE_MR=remap: memory of the process is moved to a file, page by page and where it is, so that the daemon can map
 * it. A page keeps its contents and its address; its place in the file is its address, too. So regions may overlap, and
 * whatever lies side by side is one piece of the file.
 *
 * What another thread stores into a page while it is moved is lost. That can be a neighbour of the region, as pages are
 * moved whole. With its last region a page becomes private memory again. A forked child gets copies of its own.
 */
#include "lib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* To move a page takes 2 us and more, and each region costs mappings, of which a process may have 65,530. */
enum { WORTH_MOVING = 64 << 10 };

/* The file has room for every address. Only pages that are moved take memory. */
static const off_t all_addresses = 1ll << 48;

/* Pages of a region that were moved. They stay in the file as long as any such record has them. */
struct moved {
	struct moved *next;
	uintptr_t from, to;
};

/* What a child that is being forked will have at an address. */
struct snapshot {
	struct snapshot *next;
	void *at, *copy;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct mapped_file file = {.fd = -1};		 /* map.dev and map.ino are known once fd is */
static struct moved *records;
static struct snapshot *snapshots;

static void watch_forks(void);

static bool wanted;

static void read_variable(void)
{
	const char *value = secure_getenv("GOROCE_MR");

	if (!value || !*value)
		return;
	wanted = !strcmp(value, "remap");
	if (wanted)
		watch_forks();
	else if (!quiet())
		fprintf(stderr, "goroce: GOROCE_MR is %s, which means nothing; allowed is remap\n", value);
}

static pthread_once_t variable = PTHREAD_ONCE_INIT;

/* Handlers that are registered early run last before a fork, and first after it. */
__attribute__((constructor)) static void begin_early(void)
{
	const char *value = secure_getenv("GOROCE_MR");

	if (value && !strcmp(value, "remap"))
		pthread_once(&variable, read_variable);
}

/* make_file makes the file, or reports whether it is still there: programs may close all descriptors. */
static bool make_file(void)
{
	struct rlimit limit;
	struct stat st;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur != RLIM_INFINITY)
		return false; /* to write beyond the limit raises SIGXFSZ */
	if (file.fd >= 0)
		return file_same(&file);
	file.fd = memfd_create("goroce-mr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file.fd < 0)
		return false;
	if (ftruncate(file.fd, all_addresses) || fcntl(file.fd, F_ADD_SEALS, F_SEAL_SHRINK) || fstat(file.fd, &st)) {
		close(file.fd);
		file.fd = -1;
		return false;
	}
	file.map.dev = st.st_dev;
	file.map.ino = st.st_ino;
	return true;
}

static bool in_file(const struct mapping *m) { return m->shared && m->dev == file.map.dev && m->ino == file.map.ino; }

static bool write_all(uintptr_t from, uintptr_t to)
{
	while (from < to) {
		ssize_t n = pwrite(file.fd, (void *)from, to - from, (off_t)from);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		from += (size_t)n;
	}
	return true;
}

static bool read_all(char *to, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t n = pread(file.fd, to, len, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		to += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return true;
}

/* fill_gap maps the file where the kernel has failed to replace a mapping, if it has removed that one already. The
 * program cannot go on without its memory. */
static void fill_gap(void *at, size_t len, int prot, uint64_t offset)
{
	void *p = mmap(at, len, prot, MAP_SHARED | MAP_FIXED_NOREPLACE, file.fd, (off_t)offset);

	if (p == at || (p == MAP_FAILED && errno == EEXIST))
		return;
	fprintf(stderr, "goroce: memory at %p is lost (%s)\n", at, strerror(errno));
	abort();
}

/* move_in moves pages to the file. Nothing is lost if it fails: the file has a copy before a page is replaced. */
static bool move_in(const struct mapping *m __attribute__((unused)), uintptr_t from, uintptr_t to)
{
	void *at = (void *)from;

	if (!write_all(from, to))
		return false;
	if (mmap(at, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd, (off_t)from) != MAP_FAILED)
		return true;
	fill_gap(at, to - from, PROT_READ | PROT_WRITE, from);
	return false;
}

static int prot_of(const struct mapping *m)
{
	return (m->readable ? PROT_READ : 0) | (m->writable ? PROT_WRITE : 0) | (m->executable ? PROT_EXEC : 0);
}

/* copy_private copies a piece of the file to private memory: NULL if that fails. */
static void *copy_private(uint64_t offset, size_t len, int prot)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (read_all(p, len, offset) && !mprotect(p, len, prot))
		return p;
	munmap(p, len);
	return NULL;
}

/* put_back replaces a mapping of a piece of the file with private memory of the same contents. */
static bool put_back(void *at, size_t len, int prot, uint64_t offset)
{
	void *copy = copy_private(offset, len, prot);

	if (!copy)
		return false;
	if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(copy, len);
	fill_gap(at, len, prot, offset);
	return false;
}

/* each calls f for what is mapped of a range of the file, wherever that is: programs may move memory (mremap). */
static bool each(uint64_t from, uint64_t to, bool (*f)(void *at, size_t len, int prot, uint64_t offset))
{
	struct mapping m = {.end = 0};
	struct maps maps;
	bool ok = true;

	if (!file_same(&file) || !maps_open(&maps))
		return false;
	while (maps_next(&maps, m.end, &m)) {
		uint64_t end = m.offset + (m.end - m.start), first = m.offset > from ? m.offset : from;
		uint64_t last = end < to ? end : to;
		if (in_file(&m) && first < last)
			ok &= f((void *)(m.start + (first - m.offset)), last - first, prot_of(&m), first);
	}
	maps_close(&maps);
	return ok;
}

/* uncovered finds the first pages from *from on, before end, that no record has. */
static bool uncovered(uintptr_t *from, uintptr_t end, uintptr_t *to)
{
	for (struct moved *m = records; m;) {
		bool inside = m->from <= *from && *from < m->to;
		if (inside)
			*from = m->to;
		m = inside ? records : m->next;
	}
	*to = end;
	for (struct moved *m = records; m; m = m->next) {
		if (m->from > *from && m->from < *to)
			*to = m->from;
	}
	return *from < end;
}

/* forget ends a record. Pages that no other record covers become private memory again, and their place in the file is
 * freed. If a page cannot be put back, it stays in the file, and the record stays, too. */
static void forget(struct moved *m)
{
	struct moved **p = &records;
	uintptr_t from = m->from, to;
	bool ok = true;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	for (; uncovered(&from, m->to, &to); from = to) {
		bool back = each(from, to, put_back);
		if (back)
			fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
		ok &= back;
	}
	if (ok) {
		free(m);
		return;
	}
	m->next = records;
	records = m;
}

/* on_own_stack reports whether pages are of the stack of the thread that asks. */
static bool on_own_stack(uintptr_t from, uintptr_t to)
{
	pthread_attr_t attr;
	void *base;
	size_t size;
	bool found = true;

	if (pthread_getattr_np(pthread_self(), &attr))
		return true;
	if (!pthread_attr_getstack(&attr, &base, &size))
		found = from < (uintptr_t)base + size && to > (uintptr_t)base;
	pthread_attr_destroy(&attr);
	return found;
}

/* movable reports whether a mapping is plain private memory. AT_RANDOM is on the stack of the first thread. */
static bool movable(const struct mapping *m)
{
	unsigned long stack = getauxval(AT_RANDOM);

	return !m->ino && m->readable && m->writable && !m->executable && !m->shared &&
		!(m->start <= stack && stack < m->end);
}

/* there reports whether a page is in its place in the file. */
static bool there(const struct mapping *m)
{
	return in_file(m) && m->offset == m->start && m->readable && m->writable;
}

/* walk calls f for the pages of [from, to) that are not in their place in the file, until f returns false. */
static bool walk(uintptr_t from, uintptr_t to, bool (*f)(const struct mapping *m, uintptr_t from, uintptr_t to))
{
	struct mapping m;
	struct maps maps;
	bool ok = maps_open(&maps);

	if (!ok)
		return false;
	for (uintptr_t end; ok && from < to; from = end) {
		ok = maps_find(&maps, from, &m);
		end = m.end < to ? m.end : to;
		if (ok && !there(&m))
			ok = f(&m, from, end);
	}
	maps_close(&maps);
	return ok;
}

static bool never(const struct mapping *m __attribute__((unused)), uintptr_t from __attribute__((unused)),
		  uintptr_t to __attribute__((unused)))
{
	return false;
}

/* can_move also looks whether the place in the file is free. It is not if there is a region whose memory the program
 * has unmapped. */
static bool can_move(const struct mapping *m, uintptr_t from, uintptr_t to)
{
	uintptr_t at = from, end;

	return movable(m) && uncovered(&at, to, &end) && at == from && end == to;
}

/* begin reports whether a record's pages may be moved. A short region gets a record only if all is in the file. */
static bool begin(const struct moved *m, bool worth)
{
	if (!worth)
		return file.fd >= 0 && walk(m->from, m->to, never);
	return !on_own_stack(m->from, m->to) && make_file() && walk(m->from, m->to, can_move);
}

/* remap_begin moves the pages of memory to the file. It returns a record of that, or NULL: the memory stays as it was. */
struct moved *remap_begin(void *addr, size_t length)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct moved *m;

	pthread_once(&variable, read_variable);
	if (!wanted || !length || !(m = malloc(sizeof(*m))))
		return NULL;
	m->from = (uintptr_t)addr & ~(page - 1);
	m->to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);
	pthread_mutex_lock(&lock);
	if (begin(m, length >= WORTH_MOVING)) {
		m->next = records;
		records = m;
		if (!walk(m->from, m->to, move_in)) {
			forget(m);
			m = NULL;
		}
	} else {
		free(m);
		m = NULL;
	}
	pthread_mutex_unlock(&lock);
	debug("memory at %p: %s", addr, m ? "moved to a file" : "not moved to a file");
	return m;
}

void remap_end(struct moved *m)
{
	int cancel;

	if (!m)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&lock);
	forget(m);
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
}

/* take keeps what a child will have in place of a piece of the file. */
static bool take(void *at, size_t len, int prot, uint64_t offset)
{
	struct snapshot *s = malloc(sizeof(*s));

	if (!s)
		return false;
	*s = (struct snapshot){snapshots, at, copy_private(offset, len, prot), len};
	if (!s->copy) {
		free(s);
		return false;
	}
	snapshots = s;
	return true;
}

static void before(void)
{
	pthread_mutex_lock(&lock);
	if (records && !each(0, (uint64_t)all_addresses, take) && !quiet())
		fprintf(stderr, "goroce: fork: registered memory cannot be copied: the child shares it with its parent\n");
}

static void drop_snapshots(void (*f)(struct snapshot *s))
{
	for (struct snapshot *s; (s = snapshots); free(s)) {
		snapshots = s->next;
		f(s);
	}
}

static void unmap(struct snapshot *s) { munmap(s->copy, s->len); }

static void after(void)
{
	drop_snapshots(unmap);
	pthread_mutex_unlock(&lock);
}

static void place(struct snapshot *s)
{
	if (mremap(s->copy, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, s->at) == MAP_FAILED)
		unmap(s);
}

/* in_child gives the child its copies. It has no part in the file any more, and moves memory of its own to another. */
static void in_child(void)
{
	drop_snapshots(place);
	if (file.fd >= 0 && file_same(&file))
		close(file.fd);
	file = (struct mapped_file){.fd = -1};
	for (struct moved *m = records; m; m = m->next)
		m->from = m->to = 0;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	fds_watch(); /* before, as mappings are looked at with the lock held */
	pthread_atfork(before, after, in_child);
}
