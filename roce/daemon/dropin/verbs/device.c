/*
 * The list of devices. Each listing asks the daemon that listens now, on a connection that ends with the listing. To
 * open a device makes another connection.
 */
#include "lib.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

/* query asks for the attributes of a device, which need not be open for that. */
static int query(struct control *c, const char name[64], struct goroce_device_reply *r)
{
	struct call call = {
		.op = GOROCE_QUERY_DEVICE, .body = name, .len = 64, .give = -1, .reply = r, .size = sizeof(*r),
	};

	return control_call(c, &call);
}

/* describe fills in the public part. The paths name the tree that the daemon keeps beside its socket. */
static void describe(struct device *d)
{
	struct ibv_device *v = &d->v;

	v->node_type = IBV_NODE_CA;
	v->transport_type = IBV_TRANSPORT_IB;
	snprintf(v->name, sizeof(v->name), "%.63s", d->attr.name);
	snprintf(v->dev_name, sizeof(v->dev_name), "uverbs%u", d->attr.index);
	snprintf(v->dev_path, sizeof(v->dev_path), "%s.d/sys/class/infiniband_verbs/%.20s", d->socket, v->dev_name);
	snprintf(v->ibdev_path, sizeof(v->ibdev_path), "%s.d/sys/class/infiniband/%s", d->socket, v->name);
}

/* device_release gives up a reference. The last one may be a context's, long after the list was freed. */
void device_release(struct device *d)
{
	if (atomic_fetch_sub(&d->refs, 1) == 1)
		free(d);
}

/*
 * The devices that were listed last, guarded by contexts_lock. A program that lists devices again gets the same
 * pointers, as long as the daemon is the same: librdmacm takes another pointer for another device, and opens it again.
 */
static struct device *known;

/* same compares what a program sees of a device without opening it. Another daemon's device differs in clock_offset, as
 * its clock began at another time. Limits are not compared: the daemon may change them at any time. */
static bool same(const struct device *a, const struct device *b)
{
	return !strcmp(a->socket, b->socket) && !memcmp(a->attr.name, b->attr.name, sizeof(a->attr.name)) &&
		a->attr.index == b->attr.index && a->attr.node_guid == b->attr.node_guid &&
		a->attr.clock_offset == b->attr.clock_offset;
}

/* know adds d to the known devices, or frees d if an equal one is known. The result has a reference for the caller. */
static struct device *know(struct device *d)
{
	struct device *k;

	pthread_mutex_lock(&contexts_lock);
	for (k = known; k && !same(k, d); k = k->next)
		;
	if (k) {
		free(d);
	} else {
		k = d;
		k->next = known;
		known = k;
	}
	atomic_fetch_add(&k->refs, 1);
	pthread_mutex_unlock(&contexts_lock);
	return k;
}

static bool listed(const struct device *d, struct ibv_device *const *all)
{
	while (*all && *all != &d->v)
		all++;
	return *all;
}

/* forget ends what the library knows of devices that are not in a list, as those of a daemon that has ended. Contexts
 * and other lists keep theirs. */
static void forget(struct ibv_device *const *all)
{
	pthread_mutex_lock(&contexts_lock);
	for (struct device **p = &known, *d; (d = *p);) {
		if (listed(d, all)) {
			p = &d->next;
			continue;
		}
		*p = d->next;
		device_release(d);
	}
	pthread_mutex_unlock(&contexts_lock);
}

static struct device *make(struct control *c, const char *socket, const char name[64])
{
	struct device *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return NULL;
	err = query(c, name, &d->attr);
	if (err) {
		free(d);
		return fail(err);
	}
	memcpy(d->socket, socket, sizeof(d->socket));
	atomic_init(&d->refs, 1); /* of whoever knows it */
	describe(d);
	return know(d);
}

/* list makes the list, which ends with NULL from the beginning: so a list that is not complete can be freed. */
static struct ibv_device **list(struct control *c, const char *socket, const struct goroce_hello_reply *hello, int *num)
{
	struct ibv_device **all = calloc(hello->devices + 1, sizeof(*all));

	if (!all)
		return NULL;
	for (uint32_t i = 0; i < hello->devices; i++) {
		struct device *d = make(c, socket, hello->names[i]);
		if (!d) {
			int err = errno;
			ibv_free_device_list(all);
			return fail(err);
		}
		all[i] = &d->v;
	}
	forget(all);
	if (num)
		*num = (int)hello->devices;
	return all;
}

/* ibv_get_device_list returns an empty list if there is no daemon, as it does where the kernel has no device. If a
 * daemon is there and refuses, it returns NULL with errno. */
EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct goroce_hello_reply hello;
	struct ibv_device **all;
	char path[PATH_LEN];
	struct control c;
	int err;

	if (num)
		*num = 0;
	fork_watch();
	err = daemon_dial(&c, path, &hello);
	if (err == ENOENT)
		return calloc(1, sizeof(*all));
	if (err)
		return fail(err);
	all = list(&c, path, &hello, num);
	err = errno;
	control_close(&c);
	errno = err;
	return all;
}

/* ibv_free_device_list leaves alone the devices that are open, as programs free the list once they have opened one. */
EXPORT void ibv_free_device_list(struct ibv_device **all)
{
	for (struct ibv_device **d = all; d && *d; d++)
		device_release(container_of(*d, struct device, v));
	free(all);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *v) { return v->name; }

/* The GUID is big-endian, as all GUIDs of verbs; the daemon's messages have a number. */
EXPORT uint64_t ibv_get_device_guid(struct ibv_device *v)
{
	return htobe64(container_of(v, struct device, v)->attr.node_guid);
}

EXPORT int ibv_get_device_index(struct ibv_device *v) { return (int)container_of(v, struct device, v)->attr.index; }
