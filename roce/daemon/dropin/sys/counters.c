/*
 * Counters are read when their file is opened: this asks the daemon, as a client of its own, by the protocol of
 * docs/abi.md. The file in the tree is there to be listed; what it has is of the time when the daemon wrote it.
 *
 * Each open makes a connection of its own and ends it: nothing is kept between two calls of the program's, which may
 * close descriptors, fork, or run as another user meanwhile. The socket is the one beside which the tree is, as the
 * path says.
 */
#include "../client/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys.h"

#define NAME_LEN 64

/* The most counters that a reply has room for. */
enum { MAX_COUNTERS = (GOROCE_MAX_MESSAGE - sizeof(struct goroce_header)) / sizeof(struct goroce_counter) };

/* A counter's file: SOCKET.d/sys/class/infiniband/DEVICE/ports/PORT/counters/NAME, or where its device is a link to. */
struct place {
	char socket[PATH_LEN], device[NAME_LEN], name[NAME_LEN];
	unsigned int port;
	bool hw;
};

/* parse reports whether a path in the tree is a counter's, and which. The path is compared as text: one with ".." or
 * a second slash is libc's, and has the value in the file. */
static bool parse(const char *path, struct place *p)
{
	static const char *const roots[] = { ".d/sys/class/infiniband/", ".d/sys/devices/virtual/infiniband/" };
	const char *tail = NULL, *names = NULL;
	char dir[16];
	int end = 0;
	size_t n;

	for (int i = 0; i < 2; i++) /* the last, as a socket may have any name */
		for (const char *at = path; (at = strstr(at, roots[i])); at++)
			if (at > tail || !tail) {
				tail = at;
				names = at + strlen(roots[i]);
			}
	if (!tail)
		return false;
	memset(p, 0, sizeof(*p));
	if (sscanf(names, "%63[^/]/ports/%u/%15[^/]/%63[^/]%n", p->device, &p->port, dir, p->name,
		   &end) != 4 ||
	    names[end] != '\0')
		return false;
	p->hw = strcmp(dir, "hw_counters") == 0;
	if (!p->hw && strcmp(dir, "counters") != 0)
		return false;
	n = tail - path;
	if (n >= sizeof(p->socket))
		return false;
	memcpy(p->socket, path, n);
	return true;
}

/* talk asks for the counters of a port, and returns how many there are, or -1 with errno. Opening the device brings a
 * socket of events, which is not wanted. */
static int talk(struct control *c, const struct place *p, struct goroce_counter all[MAX_COUNTERS])
{
	struct goroce_hello_reply hello;
	struct goroce_open_reply opened;
	struct goroce_port port = { .port = p->port };
	struct call open = {
		.op = GOROCE_OPEN, .body = p->device, .len = sizeof(p->device), .give = -1, .reply = &opened,
		.size = sizeof(opened), .want_fds = -1,
	};
	struct call counters = {
		.op = GOROCE_READ_COUNTERS, .body = &port, .len = sizeof(port), .give = -1, .reply = all,
		.size = MAX_COUNTERS * sizeof(*all), .some = true,
	};
	int err = daemon_hello(c, &hello);

	if (!err)
		err = control_call(c, &open);
	if (!err) {
		close_all(open.fds, open.want_fds);
		err = control_call(c, &counters);
	}
	errno = err;
	return err ? -1 : (int)(counters.got / sizeof(*all));
}

/* find finds a counter. */
static int find(const struct place *p, const struct goroce_counter *all, int n, uint64_t *value)
{
	for (int i = 0; i < n; i++) {
		if (!!all[i].hw == p->hw && strncmp(all[i].name, p->name, sizeof(all[i].name)) == 0) {
			*value = all[i].value;
			return 0;
		}
	}
	if (n >= 0)
		errno = ENOENT;
	return -1;
}

/* text_file makes a file that has a number, to be read. A memfd can be read again from its beginning, as programs do
 * with files of sysfs; its value stays that of the time when it was opened. It is the program's, so forks do not
 * close it. */
static int text_file(const char *name, uint64_t value, int flags)
{
	int fd = memfd_create(name, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);

	if (fd < 0)
		return -1;
	if (pwrite(fd, text, n, 0) != n) {
		close(fd);
		errno = EIO;
		return -1;
	}
	return fd;
}

static int read_counter(const struct place *p, int flags)
{
	struct goroce_counter all[MAX_COUNTERS];
	struct control c;
	uint64_t value;
	int err = control_dial(&c, p->socket), saved;

	if (err) {
		errno = err;
		return -1;
	}
	err = find(p, all, talk(&c, p, all), &value);
	saved = errno;
	control_close(&c);
	errno = saved;
	return err ? -1 : text_file(p->name, value, flags);
}

/* sys_counter: lifespan is a file like others, as its value is constant. Where libc is to look at the file only, or
 * opens a directory, it is left to libc. */
bool sys_counter(const char *path, int flags, int *fd)
{
	struct place p;

	if ((flags & (O_DIRECTORY | O_PATH)) || !parse(path, &p) || strcmp(p.name, "lifespan") == 0)
		return false;
	*fd = -1;
	if ((flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES; /* as sysfs has it for all but root */
		return true;
	}
	*fd = read_counter(&p, flags);
	return true;
}
