/*
 * Memory of the process is moved to a file, page by page and where it is, so that the daemon can map it. A page keeps
 * its contents and its address; its place in the file follows from its address (window.c). So regions may overlap, and
 * whatever lies side by side is one piece of the file.
 *
 * Unasked, memory is moved only if nothing can be lost by that, and nobody can notice (inexact). Otherwise it stays
 * what it is. With GOROCE_MR=remap it is moved anyway: then what another thread stores into a page while it is moved is lost.
 * That can be a neighbour of the region, as pages are moved whole. With GOROCE_MR=process none is.
 *
 * A record says of a range of pages that a region has moved them. A page is in the file as long as any record covers
 * it; which of them has moved it does not matter. To move pages: map their place in the file somewhere, copy them
 * there, and let that mapping take the place of the private one (mremap, MREMAP_FIXED), which the kernel does in one
 * call. Other threads wait meanwhile (freeze.c). To put pages back with the last region is the same the other way, but
 * without other threads: the kernel cannot say whether pages of a file are pinned. A step that fails leaves the memory
 * as it was.
 *
 * A child of fork gets copies of all that is in files. One of clone, of which no handler hears, shares the pages with
 * GOROCE_MR=remap. It has none that were moved unasked (MADV_DONTFORK), nor the file's descriptor, which is closed as
 * soon as the daemon has it. Such a file is of one context: to the daemon's connection of another it cannot be sent.
 *
 * Everything is under one lock of the process, as addresses are the process's and not a context's. The lock is held
 * over reads of the mappings, and while memory is copied; no request to the daemon is made meanwhile. It is taken after
 * contexts_lock and those of regions. Callers cannot be cancelled, and take no signal while they have it: a handler
 * could store into memory, or ask for the lock.
 */
#include "lib.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* To move a page takes 2 us and more, and each region costs mappings, of which a process may have 65,530. */
enum { WORTH_MOVING = 64 << 10 };

/* What is moved without being asked for: 64 MiB take 30 to 170 ms, and a fork copies them. A program that has ended so
 * many regions will end more, and then moving costs more than it gains. */
static const size_t most_moved = 64 << 20;
enum { MOST_ENDED = 64, LARGE = 1 << 20 };

/* Pages of a region that were moved. They stay in the file as long as any such record has them. */
struct moved {
	struct moved *next;
	struct window *in; /* NULL in a forked child */
	uintptr_t from, to;
	bool unasked; /* GOROCE_MR does not say so */
	bool others;  /* other threads run, and are to wait */
	bool ended;   /* the region has ended, but the pages could not be put back */
};

/* What a child that is being forked will have at an address. */
struct snapshot {
	struct snapshot *next;
	void *at, *copy;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct window *windows;				 /* the newest first */
static struct moved *records;
static struct snapshot *snapshots;
static atomic_size_t moved_unasked; /* bytes, of records */
static atomic_uint ended_unasked;   /* regions */

static void watch_forks(void);

/* What GOROCE_MR says; set once, before any record. */
static enum { EXACTLY, PROCESS, REMAP } mode;

static void read_variable(void)
{
	const char *value = secure_getenv("GOROCE_MR");

	if (!value || !*value)
		return;
	if (!strcmp(value, "remap"))
		mode = REMAP;
	else if (!strcmp(value, "process"))
		mode = PROCESS;
	else if (!quiet())
		fprintf(stderr, "goroce: GOROCE_MR is %s, which means nothing; allowed are remap and process\n", value);
}

static pthread_once_t variable = PTHREAD_ONCE_INIT;

/* Handlers that are registered early run last before a fork, and first after it. So they are registered when the
 * library is loaded, before a program, or a library that it loads later, has any: what such handlers store in the
 * parent before the fork is in the copies, and what they store in the child goes to the child's own pages. */
__attribute__((constructor)) static void begin_early(void) { watch_forks(); }

/* block keeps signals from the thread. */
static void block(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
}

static void unblock(const sigset_t *old) { pthread_sigmask(SIG_SETMASK, old, NULL); }

/* in_file reports whether a mapping is of a window's file. */
static bool in_file(const struct window *w, const struct mapping *m)
{
	return m->shared && m->dev == w->file.map.dev && m->ino == w->file.map.ino;
}

/* ours reports whether a mapping is of any window's file. */
static bool ours(const struct mapping *m)
{
	const struct window *w = windows;

	while (w && !in_file(w, m))
		w = w->next;
	return w;
}

/* copy copies whole pages. Beside a region there may be what sanitizers let nobody read. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static void copy(void *to, const void *from, size_t len)
{
	const volatile uint64_t *f = from; /* or else the compiler would call memcpy, which they watch */
	uint64_t *t = to;

	for (size_t i = 0; i < len / sizeof(*t); i++)
		t[i] = f[i];
}

/* fill_gap maps the file where the kernel has failed to replace a mapping, if it has removed that one already: mremap
 * unmaps the target before it does what may fail for want of memory. MAP_FIXED_NOREPLACE tells the two apart: EEXIST
 * says that the old mapping is there. The gap is filled with it at once, so that no other thread gets the addresses.
 * The program cannot go on without its memory. */
static bool fill_gap(const struct window *w, void *at, size_t len, int prot, uint64_t offset)
{
	void *p = mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (p == MAP_FAILED && errno == EEXIST)
		return false;
	if (p == at && window_place(w, offset, len, prot, at))
		return true;
	fprintf(stderr, "goroce: memory at %p is lost (%s)\n", at, strerror(errno));
	abort();
}

/* move_piece moves pages to the file. Nothing is lost if it fails: the file has a copy before a page is replaced. The
 * pages of the file are made before the copy: if there is no memory for them, the copy would end the program with
 * SIGBUS. */
static bool move_piece(const struct moved *r, uintptr_t from, size_t len)
{
	uint64_t offset = from - r->in->from;
	struct frozen f = {.fd = -1};
	void *at = (void *)from, *p = window_map(r->in, offset, len, PROT_READ | PROT_WRITE);
	bool moved;

	if (!p)
		return false;
	if (madvise(p, len, MADV_POPULATE_WRITE) && errno != EINVAL) { /* there is no memory; EINVAL: before Linux 5.14 */
		munmap(p, len);
		return false;
	}
	if (r->others && !freeze(&f, at, len)) {
		munmap(p, len);
		return false;
	}
	copy(p, r->others ? f.at : at, len);
	moved = mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
	if (!moved)
		munmap(p, len);
	if (!moved && !fill_gap(r->in, at, len, PROT_READ | PROT_WRITE, offset) && r->others)
		thaw(&f);
	else if (r->others)
		freeze_end(&f);
	return moved;
}

/* piece returns how much is copied at a time: more would take twice the memory meanwhile, and have others wait. */
static size_t piece(size_t len)
{
	const size_t most = 1 << 20;

	return len < most ? len : most;
}

/* move_in moves pages of one mapping. */
static bool move_in(const struct moved *r, const struct mapping *m __attribute__((unused)), uintptr_t from, uintptr_t to)
{
	bool ok = true;

	for (size_t n; ok && from < to; from += n) {
		n = piece(to - from);
		ok = move_piece(r, from, n);
	}
	return ok;
}

/* prot_of returns the protection of a mapping, which its replacement must have, too. */
static int prot_of(const struct mapping *m)
{
	return (m->readable ? PROT_READ : 0) | (m->writable ? PROT_WRITE : 0) | (m->executable ? PROT_EXEC : 0);
}

/* copy_private copies a piece of the file to private memory: NULL if that fails. The copy gets its protection at
 * last, as the program may have made the pages read-only meanwhile. */
static void *copy_private(const struct window *w, uint64_t offset, size_t len, int prot)
{
	void *p, *from = window_map(w, offset, len, PROT_READ);

	if (!from)
		return NULL;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		copy(p, from, len);
	munmap(from, len);
	if (p == MAP_FAILED)
		return NULL;
	if (!mprotect(p, len, prot))
		return p;
	munmap(p, len);
	return NULL;
}

/* put_back_piece replaces a mapping of a piece of the file with private memory of the same contents. The piece keeps
 * its place in the file, and its memory there, until the window ends (window.c). */
static bool put_back_piece(const struct window *w, void *at, size_t len, int prot, uint64_t offset)
{
	void *private = copy_private(w, offset, len, prot);

	if (!private)
		return false;
	if (mremap(private, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(private, len);
	fill_gap(w, at, len, prot, offset);
	return false;
}

/* put_back does so for as much as there is. */
static bool put_back(const struct window *w, void *at, size_t len, int prot, uint64_t offset)
{
	bool ok = true;

	for (size_t n, done = 0; ok && done < len; done += n) {
		n = piece(len - done);
		ok = put_back_piece(w, (char *)at + done, n, prot, offset + done);
	}
	return ok;
}

/* each calls f for what is mapped of a range of a file, wherever that is: programs may move memory (mremap), or unmap
 * it, in which case there is nothing. It goes on if f fails, and reports whether f has succeeded each time. The
 * anchor is the window's own. f may change mappings at the address that it is given, as addresses ascend. */
static bool each(const struct window *w, uint64_t from, uint64_t to,
		 bool (*f)(const struct window *w, void *at, size_t len, int prot, uint64_t offset))
{
	struct mapping m = {.end = 0};
	struct maps maps;
	bool ok = true;

	if (!maps_open(&maps))
		return false;
	while (maps_next(&maps, m.end, &m)) {
		uint64_t end = m.offset + (m.end - m.start), first = m.offset > from ? m.offset : from;
		uint64_t last = end < to ? end : to;
		if (in_file(w, &m) && first < last && m.start != (uintptr_t)w->anchor)
			ok &= f(w, (void *)(m.start + (first - m.offset)), last - first, prot_of(&m), first);
	}
	maps_close(&maps);
	return ok;
}

/* uncovered finds the first pages from *from on, before end, that no record of a window has: [*from, *to). Records
 * are in no order, so the search begins again whenever one of them has moved *from on. */
static bool uncovered(const struct window *w, uintptr_t *from, uintptr_t end, uintptr_t *to)
{
	for (struct moved *m = records; m;) {
		bool inside = m->in == w && m->from <= *from && *from < m->to;
		if (inside)
			*from = m->to;
		m = inside ? records : m->next;
	}
	*to = end;
	for (struct moved *m = records; m; m = m->next) {
		if (m->in == w && m->from > *from && m->from < *to)
			*to = m->from;
	}
	return *from < end;
}

/* drop_window ends a window that has no record any more. */
static void drop_window(struct window *w)
{
	struct window **p = &windows;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	window_end(w);
}

static void add_record(struct moved *m)
{
	m->next = records;
	records = m;
	m->in->moved += m->to - m->from;
	if (m->unasked)
		moved_unasked += m->to - m->from;
}

static void remove_record(struct moved *m)
{
	struct moved **p = &records;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	if (m->in)
		m->in->moved -= m->to - m->from;
	if (m->unasked)
		moved_unasked -= m->to - m->from;
}

/* forget ends a record. Pages that no other record covers become private memory again. If a page cannot be put back, it
 * stays in the file, and the record stays, too. With its last record a window ends, and then all that is mapped of the
 * file is put back: programs may have mapped more of it (mremap). */
static void forget(struct moved *m)
{
	struct window *w = m->in;
	uintptr_t from = m->from, to;
	bool ok = true;

	remove_record(m);
	while (w && uncovered(w, &from, m->to, &to)) {
		ok &= each(w, from - w->from, to - w->from, put_back);
		from = to;
	}
	if (!ok) {
		m->ended = true;
		add_record(m);
		return;
	}
	if (w && !w->moved && each(w, 0, w->size, put_back))
		drop_window(w);
	free(m);
}

/* on_own_stack reports whether pages are of the stack of the thread that asks: the frames of this very code would
 * change between the copy and the replacement. If the stack is not known, it may be. Stacks of other threads are not
 * found. */
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

/* movable reports whether a mapping is plain private memory. AT_RANDOM is on the stack of the first thread, whichever
 * thread asks. */
static bool movable(const struct mapping *m)
{
	unsigned long stack = getauxval(AT_RANDOM);

	return !m->ino && m->readable && m->writable && !m->executable && !m->shared &&
		!(m->start <= stack && stack < m->end);
}

/* there reports whether a page is in its place in the file. */
static bool there(const struct window *w, const struct mapping *m)
{
	return in_file(w, m) && m->offset == m->start - w->from && m->readable && m->writable;
}

/* walk calls f for the pages of a record that are not in their place in the file, until f returns false. */
static bool walk(const struct moved *r,
		 bool (*f)(const struct moved *r, const struct mapping *m, uintptr_t from, uintptr_t to))
{
	struct mapping m;
	struct maps maps;
	bool ok = maps_open(&maps);

	if (!ok)
		return false;
	for (uintptr_t end, from = r->from; ok && from < r->to; from = end) {
		ok = maps_find(&maps, from, &m);
		end = m.end < r->to ? m.end : r->to;
		if (ok && !there(r->in, &m))
			ok = f(r, &m, from, end);
	}
	maps_close(&maps);
	return ok;
}

/* never is the f of walk for a short region: a page that is not in its place is one too many. */
static bool never(const struct moved *r __attribute__((unused)), const struct mapping *m __attribute__((unused)),
		  uintptr_t from __attribute__((unused)), uintptr_t to __attribute__((unused)))
{
	return false;
}

/* nothing is the f of each for places that must not be mapped. */
static bool nothing(const struct window *w __attribute__((unused)), void *at __attribute__((unused)),
		    size_t len __attribute__((unused)), int prot __attribute__((unused)),
		    uint64_t offset __attribute__((unused)))
{
	return false;
}

/* forget_ended ends the records of regions that have ended: of all of them, or only of those whose memory the program has
 * unmapped. */
static void forget_ended(bool all)
{
	struct moved *m = records, *next;

	for (; m; m = next) {
		next = m->next;
		if (m->ended && (all || !m->in || each(m->in, m->from - m->in->from, m->to - m->in->from, nothing))) {
			m->ended = false;
			forget(m);
		}
	}
}

/* placed reports whether a mapping has a policy of its own for the nodes of its memory (mbind). */
static bool placed(const struct mapping *m)
{
	enum { DEFAULT, OF_ADDRESS = 2 }; /* MPOL_DEFAULT, MPOL_F_ADDR */
	int policy = DEFAULT;

	return !syscall(SYS_get_mempolicy, &policy, NULL, 0, m->start, OF_ADDRESS) && policy != DEFAULT;
}

/* can_move also looks whether the place in the file is free. It is not if there is a region whose memory the program
 * has unmapped, or has given another address. */
static bool can_move(const struct moved *r, const struct mapping *m, uintptr_t from, uintptr_t to)
{
	uintptr_t at = from, end;

	return movable(m) && !(r->unasked && placed(m)) && uncovered(r->in, &at, to, &end) && at == from && end == to &&
		each(r->in, from - r->in->from, to - r->in->from, nothing);
}

/* overlaps finds the window of a record that has pages of [from, to). Such pages must stay in that file: another
 * region has registered them there. */
static struct window *overlaps(uintptr_t from, uintptr_t to)
{
	struct moved *m = records;

	while (m && !(m->in && m->from < to && from < m->to))
		m = m->next;
	return m ? m->in : NULL;
}

/* find_window returns the window for a record: the one that has pages of it already, or one that has room for it. It is
 * of a context if the file is not to be sent to others. A window that is worn gets nothing new, so that it ends at
 * last. */
static struct window *find_window(const struct moved *m, const struct ibv_context *of, bool worth)
{
	struct window *w = overlaps(m->from, m->to);

	if (w || !worth)
		return w && w->of == of && window_has(w, m->from, m->to) ? w : NULL;
	/* With a file of its own, large memory is free again when the program has unmapped it. */
	for (w = of && m->to - m->from >= LARGE ? NULL : windows; w; w = w->next) {
		if (w->of == of && window_has(w, m->from, m->to) && !window_worn(w))
			return w;
	}
	w = window_make(m->from, m->to, of);
	if (w) {
		w->next = windows;
		windows = w;
	}
	return w;
}

/* begin reports whether a record's pages may be moved, before any of them is: a region that is half in the file would
 * be of no use. worth: it is to be moved. Otherwise it gets a record only if all is in the file. The record keeps its
 * pages there if the other regions end before it. */
static bool begin(struct moved *m, const struct ibv_context *of, bool worth)
{
	if (worth && on_own_stack(m->from, m->to))
		return false;
	m->in = find_window(m, of, worth);
	if (!m->in)
		return false;
	if (walk(m, worth ? can_move : never))
		return true;
	if (!m->in->moved) /* it was made for this record */
		drop_window(m->in);
	return false;
}

/* own_pages reports whether pages of a record have nothing but what is registered. Blocks of malloc that are mapped have
 * a header before them, and room behind them: glibc has the size, and two flags, in the word before. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static bool own_pages(const struct moved *m, const void *addr,
									       size_t length)
{
	enum { HEADER = 16, FLAGS = 7, MMAPPED = 2 };
	uintptr_t at = (uintptr_t)addr, header = at - HEADER;
	size_t word;

	if (at == m->from && at + length == m->to)
		return true;
#ifdef __GLIBC__
	if (at - m->from == HEADER) {
		word = ((const size_t *)addr)[-1];
		return (word & FLAGS) == MMAPPED && (word & ~(size_t)FLAGS) >= m->to - header;
	}
#endif
	return false;
}

/* of_thread reports whether pages have what the kernel and the C library keep of this thread. */
static bool of_thread(const struct moved *m)
{
	const uintptr_t room = 64 << 10, self = (uintptr_t)pthread_self();

	return m->from < self + room && self - room < m->to;
}

/* discarded is what libgoroce-sys calls (../sys/advice.c, discards). */
static bool discarded(void *addr, size_t len, bool clear)
{
	uintptr_t at = (uintptr_t)addr, end = at + len;
	struct mapping m = {.end = at};
	struct maps maps;
	bool found = false;
	sigset_t old;

	block(&old);
	pthread_mutex_lock(&lock);
	if (windows && maps_open(&maps)) {
		while (m.end < end && maps_next(&maps, m.end, &m) && m.start < end) {
			uintptr_t from = m.start > at ? m.start : at, to = m.end < end ? m.end : end;
			if (!ours(&m))
				continue;
			found = true;
			if (clear && m.writable)
				memset((void *)from, 0, to - from);
		}
		maps_close(&maps);
	}
	pthread_mutex_unlock(&lock);
	unblock(&old);
	return found;
}

/* watch_discards has libgoroce-sys call f, and reports whether no page is marked by madvise. It says no without that
 * library. */
static bool watch_discards(bool (*f)(void *addr, size_t len, bool clear))
{
	bool (*watch)(bool (*)(void *, size_t, bool)) = (__typeof__(watch))dlsym(RTLD_DEFAULT, "goroce_memory_watch");

	return watch && watch(f);
}

/* end: programs may unload the library. */
__attribute__((destructor)) static void end(void) { watch_discards(NULL); }

/* inexact returns why a record's pages are not to be moved unasked, of enum goroce_stays; 0 if they are. addr and length
 * are what is registered. */
static uint32_t inexact(struct moved *m, const void *addr, size_t length)
{
	if (length < 4096)
		return GOROCE_STAYS_SHORT;
	if (m->to - m->from + moved_unasked > most_moved)
		return GOROCE_STAYS_MUCH;
	if (ended_unasked >= MOST_ENDED)
		return GOROCE_STAYS_OFTEN;
	if (!own_pages(m, addr, length))
		return GOROCE_STAYS_BESIDE;
	if (of_thread(m))
		return GOROCE_STAYS_OF_THREAD;
	if (regions_overlap(m->from, m->to))
		return GOROCE_STAYS_BY_REGION;
	if (!watch_discards(discarded))
		return GOROCE_STAYS_MARKED;
	m->others = !one_thread();
	if (m->others && !can_freeze())
		return GOROCE_STAYS_THREADS;
	return others_than_threads();
}

/* why_not returns why a record's pages are not to be moved. */
static uint32_t why_not(struct moved *m, const void *addr, size_t length)
{
	if (m->unasked)
		return inexact(m, addr, length);
	return length < WORTH_MOVING ? GOROCE_STAYS_SHORT : 0;
}

/* give_up ends a record of which not all pages could be moved. With other threads those that were moved stay in the
 * file, whose descriptor nobody gets any more. */
static void give_up(struct moved *m)
{
	if (!m->others) {
		forget(m);
		return;
	}
	m->ended = true;
	window_close(m->in);
	forget_ended(false);
}

/*
 * remap_begin moves the pages of memory to the file. It returns a record of that, or NULL: the memory stays as it was,
 * and *stays says why. The caller then finds the file by the mapping, as that of any memory that is shared from one
 * (file.c), has the daemon map it, and calls remap_shared, or remap_end if the daemon does not.
 */
struct moved *remap_begin(struct ibv_context *v, void *addr, size_t length, uint32_t *stays)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct moved *m;
	sigset_t old;

	pthread_once(&variable, read_variable);
	*stays = mode == PROCESS ? GOROCE_STAYS_ASKED : GOROCE_STAYS_UNMOVABLE;
	if (mode == PROCESS || !length || !(m = calloc(1, sizeof(*m))))
		return NULL;
	m->unasked = mode == EXACTLY;
	m->from = (uintptr_t)addr & ~(page - 1);
	m->to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);
	block(&old);
	*stays = why_not(m, addr, length);
	pthread_mutex_lock(&lock);
	if (begin(m, m->unasked ? v : NULL, !*stays)) {
		add_record(m);
		if (!walk(m, move_in)) {
			give_up(m);
			m = NULL;
		}
	} else {
		free(m);
		m = NULL;
	}
	pthread_mutex_unlock(&lock);
	unblock(&old);
	if (!*stays)
		*stays = m ? GOROCE_STAYS_REFUSED : GOROCE_STAYS_UNMOVABLE;
	debug("memory at %p: %s", addr, m ? "in a file" : "not in a file");
	return m;
}

/* remap_shared closes the descriptor of a file that the daemon has, and no other connection is to get. */
void remap_shared(struct moved *m)
{
	if (!m || !m->unasked)
		return;
	pthread_mutex_lock(&lock);
	window_close(m->in);
	pthread_mutex_unlock(&lock);
}

/* remap_end ends a record, of a region that has ended or was not registered. NULL is one of a region that was not
 * moved. What was moved unasked stays in the file as long as others may store into it: until a region ends without
 * them, or after the program has unmapped it. */
void remap_end(struct moved *m)
{
	bool exact;
	sigset_t old;
	int cancel;

	if (!m)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	block(&old);
	exact = !m->unasked || (!regions_overlap(m->from, m->to) && one_thread() && !others_than_threads());
	if (m->unasked)
		ended_unasked++;
	pthread_mutex_lock(&lock);
	m->ended = true;
	forget_ended(exact);
	pthread_mutex_unlock(&lock);
	unblock(&old);
	pthread_setcancelstate(cancel, NULL);
}

/* take keeps what a child will have in place of a piece of the file. It allocates no memory of malloc, whose own pages
 * may be among those that were moved: they must not change between the first copy and the fork. */
static bool take(const struct window *w, void *at, size_t len, int prot, uint64_t offset)
{
	struct snapshot *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return false;
	*s = (struct snapshot){snapshots, at, copy_private(w, offset, len, prot), len};
	if (!s->copy) {
		munmap(s, sizeof(*s));
		return false;
	}
	snapshots = s;
	return true;
}

/* before copies what the child will have instead of the files, which would be shared with the parent. The lock is
 * held until the fork is done, so that no page is moved in between. A fork goes on although there is no memory for
 * copies. */
static void before(void)
{
	bool ok = true;

	pthread_mutex_lock(&lock);
	for (struct window *w = windows; w; w = w->next)
		ok &= each(w, 0, w->size, take);
	if (!ok && !quiet())
		fprintf(stderr, "goroce: fork: registered memory cannot be copied: the child has none%s\n",
			mode == REMAP ? " of its own, and shares it with its parent" : "");
}

static void drop_snapshots(void (*f)(struct snapshot *s))
{
	for (struct snapshot *s; (s = snapshots); munmap(s, sizeof(*s))) {
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

/* place puts a copy where the parent has its file mapped. If that fails the child goes on with the file, or without. */
static void place(struct snapshot *s)
{
	if (mremap(s->copy, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, s->at) == MAP_FAILED)
		unmap(s);
}

/* in_child_first gives the child its copies, before anything stores into pages that it shares with its parent. */
static void in_child_first(void) { drop_snapshots(place); }

/* in_child: the child has no part in the files any more, and moves memory of its own to others. */
static void in_child(void)
{
	struct window *w;

	for (struct moved *m = records; m; m = m->next)
		m->in = NULL;
	while ((w = windows)) {
		windows = w->next;
		window_end(w);
	}
	pthread_mutex_unlock(&lock);
}

/* watch_forks: the order counts. In the child handlers run as they were registered, so in_child_first is the first of
 * these. Before a fork they run in reverse: this lock is taken before that of fds.c, as threads take them. */
static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child_first);
	fds_watch(); /* before, as mappings are looked at with the lock held */
	pthread_atfork(before, after, in_child);
}
