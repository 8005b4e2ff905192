/*
 * opendir and scandir. The stream is one of libc's, of the directory in the tree: readdir and its like need nothing,
 * and openat by its descriptor finds the tree by what /proc says of that (sys_map_at). scandir is interposed by
 * itself, since libc's calls its own opendir.
 */
#define _GNU_SOURCE
#include <dirent.h>

#include "sys.h"

EXPORT DIR *opendir(const char *path)
{
	struct sys_path room;

	return NEXT(opendir)(sys_map(path, &room));
}

#define DEFINE_SCANDIR(name, type) \
	EXPORT int name(const char *path, type ***list, int (*filter)(const type *), \
			int (*compare)(const type **, const type **)) \
	{ \
		struct sys_path room; \
		return NEXT(name)(sys_map(path, &room), list, filter, compare); \
	}

#define DEFINE_SCANDIRAT(name_at, type) \
	EXPORT int name_at(int dir, const char *path, type ***list, int (*filter)(const type *), \
			   int (*compare)(const type **, const type **)) \
	{ \
		struct sys_path room; \
		return NEXT(name_at)(dir, sys_map_at(dir, path, &room), list, filter, compare); \
	}

DEFINE_SCANDIR(scandir, struct dirent)
#ifdef __GLIBC__
DEFINE_SCANDIR(scandir64, struct dirent64)
DEFINE_SCANDIRAT(scandirat, struct dirent)
DEFINE_SCANDIRAT(scandirat64, struct dirent64)
#endif
