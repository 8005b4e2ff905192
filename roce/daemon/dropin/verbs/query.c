/*
 * Attributes of the device, its port, its GID and partition tables, and its clock. Those of the device came
 * when it was opened, as programs expect that they do not change; all others are asked for each time, since addresses
 * and links come and go. Functions return an errno, but a few return -1 and set errno, as their man pages have it.
 *
 * Structs that newer releases of rdma-core have made longer come with the size that the program was compiled with: it
 * gets as much of them as it has room for, and zeros behind what this library knows.
 */
#include "lib.h"

#include <endian.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

/* The most rows of the GID table that a reply has room for. */
enum { MAX_GIDS = (GOROCE_MAX_MESSAGE - sizeof(struct goroce_header)) / sizeof(struct goroce_gid_entry) };
enum { NS_A_SECOND = 1000000000 };

/* clamp converts a number of the daemon to an int. */
static int clamp(uint32_t n) { return n > INT32_MAX ? INT32_MAX : (int)n; }

/* product multiplies limits, of which verbs want the total as an int. */
static int product(uint32_t a, uint32_t b)
{
	uint64_t n = (uint64_t)a * b;

	return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* Capabilities that every device of the daemon has. */
static const unsigned int always = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
	IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE;

/* ibv_query_device makes no request, but fails like others if the daemon has ended, or a child cannot connect to it.
 * Limits are what each of two programs can have at a time (roce/daemon/server/promise.go). GUIDs are big-endian.
 * page_size_cap: every page size from 4 KiB on. */
EXPORT int ibv_query_device(struct ibv_context *v, struct ibv_device_attr *a)
{
	const struct goroce_device_reply *r = &context_of(v)->attr;
	int why = ready(v);

	if (why)
		return why;
	*a = (struct ibv_device_attr){
		.node_guid = htobe64(r->node_guid),
		.sys_image_guid = htobe64(r->sys_image_guid),
		.max_mr_size = r->max_mr_size,
		.page_size_cap = ~4095ull,
		.vendor_id = r->vendor_id,
		.vendor_part_id = r->vendor_part,
		.hw_ver = r->hw_version,
		.max_qp = clamp(r->max_qp),
		.max_qp_wr = clamp(r->max_qp_wr),
		.device_cap_flags = (unsigned int)r->caps | always,
		.max_sge = clamp(r->max_sge),
		.max_sge_rd = clamp(r->max_sge),
		.max_cq = clamp(r->max_cq),
		.max_cqe = clamp(r->max_cqe),
		.max_mr = clamp(r->max_mr),
		.max_pd = clamp(r->max_pd),
		.max_qp_rd_atom = clamp(r->max_qp_rd_atomic),
		.max_qp_init_rd_atom = clamp(r->max_qp_init_rd_atom),
		.atomic_cap = clamp(r->atomic),
		.max_mw = clamp(r->max_mw),
		.max_mcast_grp = clamp(r->max_mcast_group),
		.max_mcast_qp_attach = clamp(r->max_mcast_qp),
		.max_ah = clamp(r->max_ah),
		.max_srq = clamp(r->max_srq),
		.max_srq_wr = clamp(r->max_srq_wr),
		.max_srq_sge = clamp(r->max_srq_sge),
		.max_pkeys = 1,
		.local_ca_ack_delay = (uint8_t)r->local_ca_ack_delay,
		.phys_port_cnt = 1,
	};
	a->max_res_rd_atom = product(r->max_qp_rd_atomic, r->max_qp);
	a->max_total_mcast_qp_attach = product(r->max_mcast_group, r->max_mcast_qp);
	snprintf(a->fw_ver, sizeof(a->fw_ver), "%.63s", r->firmware);
	return 0;
}

/* The bits above are the daemon's own. */
static const uint64_t kernels = (1ull << 48) - 1;

/* All memory of a process is registered on demand: the daemon looks at a page when it gets there. */
static void odp(struct ibv_device_attr_ex *a, bool xrc)
{
	const uint32_t datagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t reliable = datagram | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

	a->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	a->odp_caps.per_transport_caps.rc_odp_caps = reliable;
	a->odp_caps.per_transport_caps.uc_odp_caps = datagram | IBV_ODP_SUPPORT_WRITE;
	a->odp_caps.per_transport_caps.ud_odp_caps = datagram;
	a->xrc_odp_caps = xrc ? reliable : 0;
}

/* query_device_ex is ibv_query_device_ex. What it does not fill in is zero: tag matching, RSS, raw packets and
 * whatever else is not offered. Completions have timestamps of 64 bits in nanoseconds; hca_core_clock is in kHz. */
int query_device_ex(struct ibv_context *v, const void *input __attribute__((unused)), struct ibv_device_attr_ex *to,
		size_t size)
{
	const struct goroce_device_reply *r = &context_of(v)->attr;
	struct ibv_device_attr_ex a = {0};
	int err;

	if (size < offsetof(struct ibv_device_attr_ex, comp_mask))
		return EINVAL;
	err = ibv_query_device(v, &a.orig_attr);
	if (err)
		return err;
	odp(&a, r->caps & IBV_DEVICE_XRC);
	a.completion_timestamp_mask = UINT64_MAX;
	a.hca_core_clock = 1000000;
	a.device_cap_flags_ex = (r->caps & kernels) | always;
	a.phys_port_cnt_ex = 1;
	if (size > sizeof(a))
		memset((char *)to + sizeof(a), 0, size - sizeof(a));
	memcpy(to, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

/* Rates of a link as verbs have them: lanes times the speed of a lane. Codes of width are 1 for one lane, 2 for 4, 4
 * for 8; those of speed 1 for 2.5 Gb/s, 4 for 10, 32 for 25, 64 for 50 and 128 for 100 (IB_WIDTH_ and IB_SPEED_ of
 * Linux). The rows descend, and the last one matches any speed, also an unknown one. */
static const struct {
	uint32_t mbps;
	uint8_t width, speed; /* active_width, active_speed */
} links[] = {
	{800000, 4, 128},
	{400000, 2, 128},
	{200000, 2, 64},
	{100000, 2, 32},
	{50000, 1, 64},
	{40000, 2, 4},
	{25000, 1, 32},
	{10000, 1, 4},
	{0, 1, 1},
};

static void set_speed(struct ibv_port_attr *a, uint32_t mbps)
{
	int i = 0;

	while (links[i].mbps > mbps)
		i++;
	a->active_width = links[i].width;
	a->active_speed = links[i].speed;
	a->active_speed_ex = links[i].speed;
}

/* mtu_code returns the largest ibv_mtu that fits into a number of bytes: the port's MTU must not be said to be more. */
static int mtu_code(uint32_t bytes)
{
	int code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 128u << (code + 1) <= bytes)
		code++;
	return code;
}

/* query_port is ibv_query_port for a program with a struct of size bytes. LIDs, subnet manager and virtual lanes are
 * not of RoCE; max_vl_num 1 says that there is only lane 0. */
int query_port(struct ibv_context *v, uint8_t port, struct ibv_port_attr *to, size_t size)
{
	struct goroce_port ask_for = {port, 0};
	struct goroce_port_reply r;
	struct ibv_port_attr a = {0};
	int err = ask(v, GOROCE_QUERY_PORT, &ask_for, sizeof(ask_for), &r, sizeof(r));

	if (err)
		return err;
	a.state = clamp(r.state);
	a.max_mtu = mtu_code(r.max_mtu);
	a.active_mtu = mtu_code(r.active_mtu);
	a.gid_tbl_len = clamp(r.gids);
	a.port_cap_flags = r.port_cap_flags;
	a.max_msg_sz = r.max_msg_size;
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.phys_state = (uint8_t)r.phys_state;
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	set_speed(&a, r.speed);
	if (size > sizeof(a))
		memset((char *)to + sizeof(a), 0, size - sizeof(a));
	memcpy(to, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

/* Programs of before port_cap_flags2 have room for what is in front of it. */
EXPORT int ibv_query_port(struct ibv_context *v, uint8_t port, struct ibv_port_attr *attr)
{
	return query_port(v, port, attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* The speed is in units of 100 Mb/s. */
EXPORT int ibv_query_port_speed(struct ibv_context *v, uint32_t port, uint64_t *speed)
{
	struct goroce_port ask_for = {port, 0};
	struct goroce_port_reply r;
	int err = ask(v, GOROCE_QUERY_PORT, &ask_for, sizeof(ask_for), &r, sizeof(r));

	if (!err && !r.speed)
		err = EOPNOTSUPP;
	if (!err)
		*speed = r.speed / 100;
	return err;
}

/* gids asks for the rows of the GID table that are in use: at most MAX_GIDS, n of them. */
static int gids(struct ibv_context *v, uint32_t port, struct goroce_gid_entry rows[MAX_GIDS], size_t *n)
{
	struct goroce_port ask_for = {port, 0};
	struct call call = {
		.op = GOROCE_QUERY_GIDS, .body = &ask_for, .len = sizeof(ask_for), .give = -1, .reply = rows,
		.size = MAX_GIDS * sizeof(*rows), .some = true,
	};
	int err = context_call(v, &call);

	*n = call.got / sizeof(*rows);
	for (size_t i = 0; i < *n; i++)
		rows[i].netif[sizeof(rows[i].netif) - 1] = 0;
	return err;
}

/* gid_at returns ENODATA for an empty row, and EINVAL for one behind the table. The daemon sends only rows in use, so
 * the table's length is asked for if a row is not among them. */
int gid_at(struct ibv_context *v, uint32_t port, uint32_t index, struct goroce_gid_entry *row)
{
	struct goroce_gid_entry rows[MAX_GIDS];
	struct ibv_port_attr a;
	size_t n;
	int err = port > UINT8_MAX ? EINVAL : gids(v, port, rows, &n);

	if (err)
		return err;
	for (size_t i = 0; i < n; i++) {
		if (rows[i].index == index) {
			*row = rows[i];
			return 0;
		}
	}
	err = query_port(v, (uint8_t)port, &a, sizeof(a));
	if (err)
		return err;
	return index < (uint32_t)a.gid_tbl_len ? ENODATA : EINVAL;
}

/* gid_find returns the index of a GID of the port, or -1. */
int gid_find(struct ibv_context *v, const union ibv_gid *gid)
{
	struct goroce_gid_entry rows[MAX_GIDS];
	size_t n;

	if (gids(v, PORT, rows, &n))
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (memcmp(rows[i].gid, gid->raw, sizeof(gid->raw)) == 0)
			return clamp(rows[i].index);
	}
	return -1;
}

/* ibv_query_gid returns an empty row as a GID of zeros, as the kernel's files have it. A row behind the table is an
 * error. */
EXPORT int ibv_query_gid(struct ibv_context *v, uint8_t port, int index, union ibv_gid *gid)
{
	struct goroce_gid_entry row;
	int err = index < 0 ? EINVAL : gid_at(v, port, (uint32_t)index, &row);

	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	if (!err)
		memcpy(gid->raw, row.gid, sizeof(gid->raw));
	return 0;
}

/* gid_entry converts a row. The index of the interface is looked up in the network namespace of this process: 0 if it
 * is not there. */
static void gid_entry(const struct goroce_gid_entry *from, struct ibv_gid_entry *to)
{
	memcpy(to->gid.raw, from->gid, sizeof(to->gid.raw));
	to->gid_index = from->index;
	to->port_num = PORT;
	to->gid_type = IBV_GID_TYPE_ROCE_V2;
	to->ndev_ifindex = if_nametoindex(from->netif);
}

/* _ibv_query_gid_ex returns ENODATA for an empty row, as the kernel does. The kernel knows no flags. */
EXPORT int _ibv_query_gid_ex(struct ibv_context *v, uint32_t port, uint32_t index, struct ibv_gid_entry *to,
		uint32_t flags, size_t size)
{
	struct goroce_gid_entry row;
	struct ibv_gid_entry entry;
	int err;

	if (flags || size < sizeof(entry))
		return EINVAL;
	err = gid_at(v, port, index, &row);
	if (err)
		return err;
	gid_entry(&row, &entry);
	memset(to, 0, size);
	memcpy(to, &entry, sizeof(entry));
	return 0;
}

/* _ibv_query_gid_table returns how many rows it has filled in, or a negative errno. Rows of the program's are size
 * bytes apart, which may be more than this library knows. There must be room for all rows. */
EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *v, struct ibv_gid_entry *to, size_t max, uint32_t flags,
		size_t size)
{
	struct goroce_gid_entry rows[MAX_GIDS];
	size_t n;
	int err;

	if (flags)
		return -EINVAL;
	if (size < sizeof(*to))
		return -EINVAL;
	err = gids(v, PORT, rows, &n);
	if (err)
		return -err;
	if (n > max)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		struct ibv_gid_entry entry;
		gid_entry(&rows[i], &entry);
		memset((char *)to + i * size, 0, size);
		memcpy((char *)to + i * size, &entry, sizeof(entry));
	}
	return (ssize_t)n;
}

/* ibv_query_pkey returns a big-endian P_Key. There is one, at index 0. */
EXPORT int ibv_query_pkey(struct ibv_context *v, uint8_t port, int index, uint16_t *pkey)
{
	struct goroce_port ask_for = {port, (uint32_t)index};
	struct goroce_pkey_reply r;
	int err = ask(v, GOROCE_QUERY_PKEY, &ask_for, sizeof(ask_for), &r, sizeof(r));

	if (err) {
		errno = err;
		return -1;
	}
	*pkey = htobe16(r.pkey);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *v, uint8_t port, uint16_t pkey)
{
	uint16_t only;

	if (ibv_query_pkey(v, port, 0, &only))
		return -1;
	if (only == pkey)
		return 0;
	errno = EINVAL;
	return -1;
}

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * NS_A_SECOND + t.tv_nsec;
}

/* query_rt_values is ibv_query_rt_values_ex. The device's clock is CLOCK_MONOTONIC from another beginning, so nobody
 * needs to be asked; timestamps of completions are on it, too. */
int query_rt_values(struct ibv_context *v, struct ibv_values_ex *values)
{
	int why = ready(v);
	int64_t device = now(CLOCK_MONOTONIC) - context_of(v)->attr.clock_offset;

	if (why)
		return why;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (values->comp_mask)
		values->raw_clock = (struct timespec){.tv_nsec = device % NS_A_SECOND, .tv_sec = device / NS_A_SECOND};
	return 0;
}

/* clock_wallclock converts a time on the device's clock to nanoseconds since 1970, by the difference that both clocks
 * have now: if the time of day was set since then, the result is by the new time. */
uint64_t clock_wallclock(struct ibv_context *v, int64_t device)
{
	int64_t monotonic = device + context_of(v)->attr.clock_offset;

	return (uint64_t)(monotonic + now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC));
}
