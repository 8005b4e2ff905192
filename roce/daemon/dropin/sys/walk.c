/*
 * chdir, statfs, glob, ftw and fts. A program that goes to a directory of the tree is in the tree itself, and so are
 * the paths that ftw and fts give it. libc's functions that walk call others of libc, past this library: with a root
 * in the tree that does not matter, as all below it is there, but for glob, whose pattern may begin above.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <fts.h>
#endif

#include "sys.h"

EXPORT int chdir(const char *path)
{
	struct sys_path room;

	return NEXT(chdir)(sys_map(path, &room));
}

/* The tree is on a file system of any type; programs that ask want to know whether /sys is there. */
#define DEFINE_STATFS(name, type) \
	EXPORT int name(const char *path, type *st) \
	{ \
		struct sys_path room; \
		const char *at = sys_map(path, &room); \
		int ret = NEXT(name)(at, st); \
		if (!ret && at == room.text && strstr(at, ".d/sys/")) \
			st->f_type = SYSFS_MAGIC; \
		return ret; \
	}

#define DEFINE_STATVFS(name, type) \
	EXPORT int name(const char *path, type *st) \
	{ \
		struct sys_path room; \
		return NEXT(name)(sys_map(path, &room), st); \
	}

/*
 * libc's own glob calls functions of libc that nobody can interpose, unless it is given others. Those that it gets
 * here are the functions of this library, which see each directory of the pattern, and so what glob returns are the
 * paths that the program has asked for, not those in the tree. A program that gives functions of its own keeps them.
 * The flag is taken away again, as the program has not set it.
 */
#define DEFINE_GLOB(name, type, entry, status, by_stat, by_lstat) \
	static int name##_stat(const char *path, status *st) { return by_stat(path, st); } \
	static int name##_lstat(const char *path, status *st) { return by_lstat(path, st); } \
	static void *name##_open(const char *path) { return opendir(path); } \
	static void name##_close(void *dir) { closedir(dir); } \
	static entry *name##_read(void *dir) { return READ_##name(dir); } \
	EXPORT int name(const char *pattern, int flags, int (*failed)(const char *, int), type *list) \
	{ \
		int ret; \
		if (flags & GLOB_ALTDIRFUNC) \
			return NEXT(name)(pattern, flags, failed, list); \
		list->gl_opendir = name##_open; \
		list->gl_closedir = name##_close; \
		list->gl_readdir = name##_read; \
		list->gl_stat = name##_stat; \
		list->gl_lstat = name##_lstat; \
		ret = NEXT(name)(pattern, flags | GLOB_ALTDIRFUNC, failed, list); \
		list->gl_flags &= ~GLOB_ALTDIRFUNC; \
		return ret; \
	}

#define DEFINE_FTW(ftw_name, nftw_name, type) \
	EXPORT int ftw_name(const char *path, int (*f)(const char *, const type *, int), int fds) \
	{ \
		struct sys_path room; \
		return NEXT(ftw_name)(sys_map(path, &room), f, fds); \
	} \
	EXPORT int nftw_name(const char *path, int (*f)(const char *, const type *, int, struct FTW *), int fds, \
			     int flags) \
	{ \
		struct sys_path room; \
		return NEXT(nftw_name)(sys_map(path, &room), f, fds, flags); \
	}

/* fts copies the paths, so the rooms are freed when it is open. NULL with ENOMEM if there is no memory for them. */
#define DEFINE_FTS(name, tree, entry) \
	EXPORT tree *name(char *const *paths, int options, int (*compare)(const entry **, const entry **)) \
	{ \
		size_t n = 0; \
		tree *made = NULL; \
		while (paths[n]) \
			n++; \
		struct sys_path *rooms = calloc(n + 1, sizeof(*rooms)); \
		const char **mapped = calloc(n + 1, sizeof(*mapped)); \
		if (rooms && mapped) { \
			for (size_t i = 0; i < n; i++) \
				mapped[i] = sys_map(paths[i], &rooms[i]); \
			made = NEXT(name)((char *const *)mapped, options, compare); \
		} \
		free(mapped); \
		free(rooms); \
		return made; \
	}

DEFINE_STATFS(statfs, struct statfs)
DEFINE_STATVFS(statvfs, struct statvfs)
DEFINE_FTW(ftw, nftw, struct stat)
#ifdef __GLIBC__
#define READ_glob(dir) readdir(dir)
#define READ_glob64(dir) readdir64(dir)
DEFINE_GLOB(glob, glob_t, struct dirent, struct stat, stat, lstat)
DEFINE_GLOB(glob64, glob64_t, struct dirent64, struct stat64, stat64, lstat64)
DEFINE_STATFS(statfs64, struct statfs64)
DEFINE_STATVFS(statvfs64, struct statvfs64)
DEFINE_FTW(ftw64, nftw64, struct stat64)
DEFINE_FTS(fts_open, FTS, FTSENT)
DEFINE_FTS(fts64_open, FTS64, FTSENT64)
#endif
