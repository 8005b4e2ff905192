/*
 * Looks at the same files by every function that libgoroce-sys.so interposes, and
 * prints what it finds. With a directory as argument the files are below that.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char root[256];

/* at returns a path below the root; a thread may use two at a time. */
static const char *at(const char *path)
{
	static __thread char buf[2][512];
	static __thread int next;

	next = !next;
	snprintf(buf[next], sizeof(buf[next]), "%s%s", root, path);
	return buf[next];
}

/* below leaves out the tree's directory, which ends in ".d". */
static const char *below(const char *path)
{
	const char *tail = strstr(path, ".d/");

	return tail ? tail + 2 : path;
}

#define GUID "/sys/class/infiniband/blue/node_guid"
#define NODE "/dev/infiniband/uverbs0"
#define LINK "/sys/class/infiniband_verbs/uverbs0/device"
#define GONE "/sys/class/infiniband/green"

static void text(const char *name, int fd)
{
	char buf[64] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	printf("%s: %s\n", name, n < 0 ? strerror(errno) : buf);
	if (fd >= 0)
		close(fd);
}

static void stream(const char *name, FILE *f)
{
	char buf[64] = "";

	printf("%s: %s\n", name, f && fgets(buf, sizeof(buf), f) ? buf : strerror(errno));
	if (f)
		fclose(f);
}

/* The older names, which only programs of an older glibc call. */
#ifdef __x86_64__
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif
#define OLDER(name) __asm__(".symver " #name "," #name "@" OLD)
extern int __xstat(int version, const char *path, struct stat *st);
extern int __lxstat(int version, const char *path, struct stat *st);
extern int __xstat64(int version, const char *path, struct stat64 *st);
extern int __lxstat64(int version, const char *path, struct stat64 *st);
OLDER(__xstat);
OLDER(__lxstat);
OLDER(__xstat64);
OLDER(__lxstat64);
#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void stats(const char *path)
{
	struct stat st;
	struct stat64 st64;
	struct statx stx;

#define SHOW(name, call, st) \
	do { \
		memset(&(st), 0, sizeof(st)); \
		int ret_ = (call); \
		printf("%s %s: %s %o %ju\n", name, path, ret_ ? strerror(errno) : "ok", \
		       (unsigned int)(st).st_mode, (uintmax_t)(st).st_rdev); \
	} while (0)
	SHOW("stat", stat(at(path), &st), st);
	SHOW("lstat", lstat(at(path), &st), st);
	SHOW("fstatat", fstatat(AT_FDCWD, at(path), &st, AT_SYMLINK_NOFOLLOW), st);
	SHOW("stat64", stat64(at(path), &st64), st64);
	SHOW("lstat64", lstat64(at(path), &st64), st64);
	SHOW("fstatat64", fstatat64(AT_FDCWD, at(path), &st64, 0), st64);
	SHOW("__xstat", __xstat(STAT_VERSION, at(path), &st), st);
	SHOW("__lxstat", __lxstat(STAT_VERSION, at(path), &st), st);
	SHOW("__xstat64", __xstat64(STAT_VERSION, at(path), &st64), st64);
	SHOW("__lxstat64", __lxstat64(STAT_VERSION, at(path), &st64), st64);
	memset(&stx, 0, sizeof(stx));
	int ret = statx(AT_FDCWD, at(path), 0, STATX_MODE, &stx);
	printf("statx %s: %s %o\n", path, ret ? strerror(errno) : "ok", stx.stx_mode);
	printf("access %s: %d %d %d\n", path, access(at(path), R_OK), eaccess(at(path), F_OK),
	       faccessat(AT_FDCWD, at(path), R_OK, AT_EACCESS));
	ret = (int)getxattr(at(path), "user.x", NULL, 0);
	printf("getxattr %s: %d %d\n", path, ret, errno);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void dirs(const char *path)
{
	struct dirent **list;
	struct dirent *e;
	int names = 0;
	DIR *d = opendir(at(path));

	while (d && (e = readdir(d)))
		names++;
	printf("opendir %s: %d names, %s\n", path, names, d ? "ok" : strerror(errno));
	if (d)
		closedir(d);
	int n = scandir(at(path), &list, NULL, by_name);
	printf("scandir %s: %d", path, n);
	for (int i = 0; i < n; i++) {
		printf(" %s", list[i]->d_name);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	printf("\n");
}

static void links(void)
{
	char buf[512] = "", *path;
	ssize_t n = readlink(at(LINK), buf, sizeof(buf) - 1);

	printf("readlink: %zd %s\n", n, buf);
	memset(buf, 0, sizeof(buf));
	n = readlinkat(AT_FDCWD, at(LINK), buf, sizeof(buf) - 1);
	printf("readlinkat: %zd %s\n", n, buf);
	path = realpath(at(LINK), NULL);
	printf("realpath: %s\n", path ? below(path) : strerror(errno));
	free(path);
	path = canonicalize_file_name(at(LINK));
	printf("canonicalize_file_name: %s\n", path ? below(path) : strerror(errno));
	free(path);
}

static int seen;

static int count(const char *path, const struct stat *st, int type)
{
	(void)st;
	seen += path && type != FTW_NS;
	return 0;
}

static int count_more(const char *path, const struct stat *st, int type, struct FTW *place)
{
	return count(path, st, place ? type : FTW_NS);
}

static void walks(void)
{
	static const char *patterns[] = { "/sys/class/infiniband/*", "/sys/class/infiniband_verbs/*/d*", GONE "/*",
					  "/sys/class/infiniband/{blue,green}/node_*", "/dev/infiniband/uverbs[0-9]" };
	char *paths[] = { (char *)at("/sys/class/infiniband"), (char *)at("/dev/infiniband"), NULL };
	glob_t list;
	glob64_t list64;

	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
		int ret = glob(at(patterns[i]), GLOB_BRACE, NULL, &list);

		printf("glob %s: %d", patterns[i], ret);
		for (size_t j = 0; !ret && j < list.gl_pathc; j++)
			printf(" %s", below(list.gl_pathv[j]));
		printf("\n");
		globfree(&list);
		ret = glob64(at(patterns[i]), GLOB_BRACE | GLOB_MARK, NULL, &list64);
		printf("glob64: %d %zu\n", ret, ret ? 0 : list64.gl_pathc);
		globfree64(&list64);
	}
	seen = 0;
	printf("ftw: %d", ftw(at("/sys/class/infiniband"), count, 8));
	printf(" nftw: %d", nftw(at("/sys/class/infiniband"), count_more, 8, FTW_CHDIR));
	printf(" %d files\n", seen);
	FTS *f = fts_open(paths, FTS_LOGICAL | FTS_NOSTAT, NULL);
	for (seen = 0; f && fts_read(f);)
		seen++;
	printf("fts: %d files\n", seen);
	if (f)
		fts_close(f);
}

/* Paths that are relative to a directory above the tree, or in it. */
static void relative(void)
{
	static const char *dirs[] = { "/", "/sys", "/sys/class", "/sys/class/infiniband", "/dev", "/dev/infiniband" };
	static const char *tails[] = { "sys/class/infiniband/blue/node_guid", "class/infiniband/blue/node_guid",
				       "infiniband/blue/node_guid", "blue/node_guid", "infiniband/uverbs0", "uverbs0" };
	struct statfs fs;
	struct statvfs vfs;
	struct stat st;
	char buf[64];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		int dir = open(at(dirs[i]), O_PATH | O_DIRECTORY);

		text(dirs[i], openat(dir, tails[i], O_RDONLY));
		printf("%d %d %zd %d\n", fstatat(dir, tails[i], &st, 0), faccessat(dir, tails[i], R_OK, 0),
		       readlinkat(dir, tails[i], buf, sizeof(buf)), fstatat(dir, "green", &st, 0));
		close(dir);
		printf("chdir: %d", chdir(at(dirs[i])));
		text(" open", open(tails[i], O_RDONLY));
		printf("stat: %d\n", stat(tails[i], &st));
	}
	printf("statfs: %d %d\n", statfs(at(GUID), &fs), statfs(at(GONE), &fs));
	printf("statvfs: %d %d\n", statvfs(at(GUID), &vfs), statvfs(at(GONE), &vfs));
	printf("chdir back: %d\n", chdir("/"));
}

static void all(void)
{
	text("open", open(at(GUID), O_RDONLY));
	text("open64", open64(at(GUID), O_RDONLY | O_CLOEXEC));
	text("openat", openat(AT_FDCWD, at(GUID), O_RDONLY));
	text("openat64", openat64(AT_FDCWD, at(GUID), O_RDONLY));
	text("open of what is not there", open(at(GONE), O_RDONLY));
	stream("fopen", fopen(at(GUID), "r"));
	stream("fopen64", fopen64(at(GUID), "re"));
	stream("fopen of what is not there", fopen(at(GONE), "r"));
	stats(GUID);
	stats(NODE);
	stats(LINK);
	stats(GONE);
	dirs("/sys/class/infiniband");
	dirs("/dev/infiniband");
	dirs(GONE);
	links();
	walks();
	relative();
}

/* Paths that are not in the tree, and what open and stat say of them. */
static void others(void)
{
	static const char *paths[] = { "/sys/class/infini", "/dev/infinibandwidth", "/dev/infin", "/sys/class/net",
				       "no/sys/class/infiniband", "/", "", "/dev/null", "/etc/passwd", "/proc/self/status" };
	struct stat st;

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		int fd = open(paths[i], O_RDONLY);
		int ret = stat(paths[i], &st);

		printf("%s: %d %d\n", paths[i], fd >= 0, ret);
		if (fd >= 0)
			close(fd);
	}
	char made[64];

	snprintf(made, sizeof(made), "/tmp/goroce-made-%d", (int)getpid());
	unlink(made); /* of a process that had this PID, and was killed */
	int fd = open(made, O_CREAT | O_RDWR | O_EXCL, 0640); /* the mode goes along */
	printf("made: %d %d\n", fd >= 0, fstat(fd, &st) ? -1 : (int)st.st_mode);
	close(fd);
	unlink(made);
}

static void *looker(void *arg)
{
	struct stat st;

	for (int i = 0; i < 2000; i++) {
		int fd = open(at(GUID), O_RDONLY);

		if (fd < 0 || stat(at(NODE), &st) || access(at(GONE), F_OK) == 0 || stat("/etc/passwd", &st)) {
			perror("a thread");
			exit(1);
		}
		close(fd);
		if (i % 500 == (long)arg) {
			pid_t pid = fork();
			int status;

			if (pid == 0) {
				fd = open(at(GUID), O_RDONLY);
				_exit(fd < 0 || stat(at(NODE), &st) || access(at(GONE), F_OK) == 0);
			}
			if (pid < 0) {
				perror("fork");
				exit(1);
			}
			if (waitpid(pid, &status, 0) < 0 || status) {
				fprintf(stderr, "a child: %d\n", status);
				exit(1);
			}
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t list[8];

	for (long i = 0; i < 8; i++)
		if (pthread_create(&list[i], NULL, looker, (void *)i))
			exit(1);
	for (int i = 0; i < 8; i++)
		pthread_join(list[i], NULL);
	printf("threads: ok\n");
}

/* How often the program allocates. */
static int allocations;
extern void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}

static void frugal(void)
{
	struct stat st;
	char buf[64];

	for (int i = 0; i < 2; i++) { /* the first time may cost something */
		allocations = 0;
		close(open("/etc/passwd", O_RDONLY));
		if (stat("/etc/passwd", &st) || access("/etc/passwd", R_OK) || readlink("/proc/self/exe", buf, 64) < 0)
			exit(1);
	}
	printf("allocations: %d\n", allocations);
}

/* What the first constructor sees; glibc gives constructors the arguments of main. */
static int early = -1;

__attribute__((constructor(101))) static void before(int argc, char **argv)
{
	struct stat st;

	if (argc > 1)
		snprintf(root, sizeof(root), "%s", argv[1]);
	early = stat(at(GUID), &st);
}

/* alone goes on when the first thread has ended. */
static void *alone(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	printf("without the first thread\n");
	relative();
	exit(0);
}

int main(void)
{
	static pthread_t self;
	pthread_t last;

	printf("in a constructor: %d\n", early);
	all();
	others();
	frugal();
	threads();
	self = pthread_self();
	if (pthread_create(&last, NULL, alone, &self))
		return 1;
	pthread_exit(NULL);
}
