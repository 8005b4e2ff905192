/*
 * Windows: files to which memory of the process is moved (remap.c). A window has a place in its file for each page of a
 * range of addresses. Only pages that are moved take memory.
 *
 * Once the daemon has the file, nobody can write to it by its descriptor, map it for writing, or free pages of it
 * (docs/abi.md, "Shared memory"). But a mapping that is there can be mapped once more, and farther (mremap of size 0).
 * So a window has one, the anchor, of its first page, for as long as it lives. A page that was put back keeps its place
 * and its memory there until it is moved again, or the window ends.
 */
#include "lib.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* open_file makes a window's file, and maps its first page. The descriptor is not one that forks close (fds.c): a
 * child ends the windows itself, after it has its copies (remap.c). */
static bool open_file(struct window *w)
{
	struct rlimit limit;
	struct stat st;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < w->size)
		return false; /* to make it longer would raise SIGXFSZ */
	w->file.fd = memfd_create("goroce-mr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->file.fd < 0)
		return false;
	if (ftruncate(w->file.fd, (off_t)w->size) || fcntl(w->file.fd, F_ADD_SEALS, F_SEAL_SHRINK) ||
			fstat(w->file.fd, &st)) {
		close(w->file.fd);
		return false;
	}
	w->file.map.dev = st.st_dev;
	w->file.map.ino = st.st_ino;
	w->anchor = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_SHARED, w->file.fd, 0);
	/* What is mapped by the anchor gets its mark. The call is none of the program's (../sys/advice.c). */
	if (w->anchor != MAP_FAILED && (!w->of || !syscall(SYS_madvise, w->anchor, 1, MADV_DONTFORK)))
		return true;
	if (w->anchor != MAP_FAILED)
		munmap(w->anchor, (size_t)sysconf(_SC_PAGESIZE));
	close(w->file.fd);
	return false;
}

/* window_make makes a window with [from, to) about in its middle: NULL if it cannot. What lies side by side then has
 * a place in the same file, in whichever direction the program's memory grows. */
struct window *window_make(uintptr_t from, uintptr_t to, const struct ibv_context *of)
{
	/* The daemon maps all of the file, and of those for one context there may be many. */
	const uint64_t size = of ? 1ull << 30 : 64ull << 30;
	struct window *w;

	if (to - from > size || !(w = calloc(1, sizeof(*w))))
		return NULL;
	w->size = size;
	w->of = of;
	if (to > size)
		w->from = to - size;
	if (from > size / 2 && from - size / 2 > w->from)
		w->from = from - size / 2;
	if (open_file(w))
		return w;
	free(w);
	return NULL;
}

/* window_close closes the descriptor of the file. */
void window_close(struct window *w)
{
	if (file_same(&w->file)) /* programs may close all descriptors */
		close(w->file.fd);
	w->file.fd = -1;
}

/* window_end frees a window that nobody uses. */
void window_end(struct window *w)
{
	munmap(w->anchor, (size_t)sysconf(_SC_PAGESIZE));
	window_close(w);
	free(w);
}

/* window_has reports whether the pages of a range have places in the file. */
bool window_has(const struct window *w, uintptr_t from, uintptr_t to)
{
	return w->from <= from && to <= w->from + w->size;
}

/* window_worn reports whether much of the file's memory is of pages that were put back. */
bool window_worn(const struct window *w)
{
	const uint64_t slack = 64 << 20;
	struct stat st;

	return file_same(&w->file) && !fstat(w->file.fd, &st) && (uint64_t)st.st_blocks * 512 > 2 * w->moved + slack;
}

/* window_map maps a piece of the file at any address: NULL if it cannot. */
void *window_map(const struct window *w, uint64_t offset, size_t len, int prot)
{
	char *p = mremap(w->anchor, 0, offset + len, MREMAP_MAYMOVE);

	if (p == MAP_FAILED)
		return NULL;
	if (offset && munmap(p, offset)) {
		munmap(p, offset + len);
		return NULL;
	}
	if (!mprotect(p + offset, len, prot))
		return p + offset;
	munmap(p + offset, len);
	return NULL;
}

/* window_place maps a piece of the file at an address, in place of what is mapped there. The kernel may have removed
 * that although it fails. */
bool window_place(const struct window *w, uint64_t offset, size_t len, int prot, void *at)
{
	void *p = window_map(w, offset, len, prot);

	if (!p)
		return false;
	if (mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(p, len);
	return false;
}
