/* What calls of libibverbs accept and with which errno they refuse: each line is a call, or several that are alike, and
 * what came of it. tests/rxe records what rdma_rxe does, and tests/dropin compares the library with that. */
#include "verbs_common.h"

#include <arpa/inet.h>

enum { NO_ROW = -1, EMPTY = 254, UNKNOWN = 0xDEAD };

static int row4 = NO_ROW, row6 = NO_ROW;
static union ibv_gid gid4, gid6;

static const char *name_of(int err) { return err ? strerrorname_np(err) : "ok"; }

/* made is the errno of a call that returns an object. */
static int made(const void *object) { return object ? 0 : errno; }

static bool is4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {[10] = 0xFF, [11] = 0xFF};

	return !memcmp(g->raw, prefix, sizeof(prefix));
}

/* find_rows finds the first rows of RoCE v2 with an IPv4 and with an IPv6 address. */
static void find_rows(void)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry e;

	IS(0, ibv_query_port(ctx, 1, &port));
	for (int i = 0; i < port.gid_tbl_len && i < 256; i++) {
		if (ibv_query_gid_ex(ctx, 1, (uint32_t)i, &e, 0) || e.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (is4(&e.gid) && row4 == NO_ROW) {
			row4 = i;
			gid4 = e.gid;
		} else if (!is4(&e.gid) && row6 == NO_ROW) {
			row6 = i;
			gid6 = e.gid;
		}
	}
	MUST(row4 != NO_ROW && row6 != NO_ROW);
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid g = {.raw = {[10] = 0xFF, [11] = 0xFF}};

	if (strchr(text, ':'))
		MUST(inet_pton(AF_INET6, text, &g) == 1);
	else
		MUST(inet_pton(AF_INET, text, g.raw + 12) == 1);
	return g;
}

static int new_qp(enum ibv_qp_type type, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {4, 4, 1, 1, 0}};

	*qp = ibv_create_qp(pd, &a);
	return made(*qp);
}

/* with_handle makes a call about an object whose handle is another one. */
#define WITH(object, number, call)                       \
	({                                               \
		uint32_t old_ = (object)->handle;        \
		int err_;                                \
		(object)->handle = (number);             \
		errno = 0;                               \
		err_ = (call);                           \
		(object)->handle = old_;                 \
		err_ < 0 ? errno : err_;                 \
	})
#define HANDLE(text, object, other, call)                                                               \
	printf("%s: unknown %s, of another kind %s\n", text, name_of(WITH(object, UNKNOWN, call)),      \
	       (other) ? name_of(WITH(object, ((other) ? (other)->handle : 0), call)) : "-")

/* handles: objects that are not there, which a program may name after a double close. */
static void handles(void)
{
	struct ibv_qp_init_attr qa = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}}, qi;
	struct ibv_srq_init_attr sa = {.attr = {4, 1, 0}};
	struct ibv_srq_attr srq_attr = {.srq_limit = 1};
	struct ibv_ah_attr aa = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid4, .sgid_index = (uint8_t)row4,
			.hop_limit = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	union ibv_gid group = gid_of("239.1.2.3");
	struct ibv_qp *qp, *ud;
	struct ibv_srq *srq;
	struct ibv_mw *mw;
	struct ibv_ah *ah;

	MUST(srq = ibv_create_srq(pd, &sa));
	MUST(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	MUST(ah = ibv_create_ah(pd, &aa));
	IS(0, new_qp(IBV_QPT_RC, &qp));
	IS(0, new_qp(IBV_QPT_UD, &ud));
	for (int i = 0; i < 64; i++) /* so that a number below is of no PD */
		MUST(ibv_create_ah(pd, &aa));
	HANDLE("reg_mr", pd, ah, made(ibv_reg_mr(pd, buf, 4096, 0)));
	HANDLE("create_qp, PD", pd, cq, made(ibv_create_qp(pd, &qa)));
	HANDLE("create_qp, CQ", cq, pd, made(ibv_create_qp(pd, &qa)));
	qa.srq = srq;
	HANDLE("create_qp, SRQ", srq, pd, made(ibv_create_qp(pd, &qa)));
	HANDLE("create_srq", pd, cq, made(ibv_create_srq(pd, &sa)));
	HANDLE("create_ah", pd, cq, made(ibv_create_ah(pd, &aa)));
	HANDLE("alloc_mw", pd, cq, made(ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	HANDLE("rereg_mr, PD", pd, cq, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) ? errno : 0);
	HANDLE("rereg_mr", mr, cq, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1) ? errno : 0);
	HANDLE("resize_cq", cq, pd, ibv_resize_cq(cq, 300));
	HANDLE("modify_qp", qp, cq, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	HANDLE("query_qp", qp, cq, ibv_query_qp(qp, &attr, IBV_QP_STATE, &qi));
	HANDLE("modify_srq", srq, cq, ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT));
	HANDLE("query_srq", srq, cq, ibv_query_srq(srq, &srq_attr));
	HANDLE("attach_mcast", ud, cq, ibv_attach_mcast(ud, &group, 0));
	HANDLE("detach_mcast", ud, cq, ibv_detach_mcast(ud, &group, 0));
	HANDLE("dereg_mr", mr, cq, ibv_dereg_mr(mr));
	HANDLE("dealloc_mw", mw, cq, ibv_dealloc_mw(mw));
	HANDLE("destroy_ah", ah, cq, ibv_destroy_ah(ah));
	HANDLE("destroy_qp", qp, cq, ibv_destroy_qp(qp));
	HANDLE("destroy_srq", srq, pd, ibv_destroy_srq(srq));
	HANDLE("destroy_cq", cq, pd, ibv_destroy_cq(cq));
	HANDLE("dealloc_pd", pd, cq, ibv_dealloc_pd(pd));
}

/* address_handles: each source row, with each kind of destination. */
static void address_handles(void)
{
	const struct {
		const char *name;
		union ibv_gid gid;
	} to[] = {{"own IPv4", gid4}, {"own IPv6", gid6}, {"group of IPv4", gid_of("239.1.2.3")},
		{"group of IPv6", gid_of("ff0e::1:2")}};
	const struct {
		const char *name;
		int row;
	} from[] = {{"IPv4", row4}, {"IPv6", row6}, {"an empty row", EMPTY}};

	for (size_t i = 0; i < sizeof(from) / sizeof(*from); i++) {
		for (size_t j = 0; j < sizeof(to) / sizeof(*to); j++) {
			struct ibv_ah_attr a = {.is_global = 1, .port_num = 1,
				.grh = {.dgid = to[j].gid, .sgid_index = (uint8_t)from[i].row, .hop_limit = 4}};
			printf("create_ah from %s to %s: %s", from[i].name, to[j].name,
			       name_of(made(ibv_create_ah(pd, &a))));
			a.port_num = 0;
			printf(", port 0 %s", name_of(made(ibv_create_ah(pd, &a))));
			a.port_num = 2;
			printf(", port 2 %s", name_of(made(ibv_create_ah(pd, &a))));
			a.port_num = 1;
			a.is_global = 0;
			printf(", without GRH %s\n", name_of(made(ibv_create_ah(pd, &a))));
		}
	}
}

static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const struct {
	enum ibv_qp_type type;
	const char *name;
	int needs[4]; /* to INIT, RTR, RTS */
} types[] = {
	{IBV_QPT_RC, "RC", {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QP_AV | IBV_QP_PATH_MTU |
		IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN |
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC}},
	{IBV_QPT_UC, "UC", {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QP_AV | IBV_QP_PATH_MTU |
		IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, IBV_QP_SQ_PSN}},
	{IBV_QPT_UD, "UD", {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN}},
};

static struct ibv_qp_attr good(enum ibv_qp_state to, enum ibv_qp_state from)
{
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1,
		.grh = {.dgid = gid4, .sgid_index = (uint8_t)row4, .hop_limit = 4}};

	return (struct ibv_qp_attr){.qp_state = to, .cur_qp_state = from, .path_mtu = IBV_MTU_256,
		.path_mig_state = IBV_MIG_MIGRATED, .qkey = 0x11, .rq_psn = 1, .sq_psn = 1, .dest_qp_num = 77,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .cap = {4, 4, 1, 1, 0}, .ah_attr = ah, .alt_ah_attr = ah,
		.max_rd_atomic = 1, .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .port_num = 1, .timeout = 14,
		.retry_cnt = 1, .rnr_retry = 1, .alt_port_num = 1, .alt_timeout = 1, .rate_limit = 1};
}

static int needs(size_t type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	bool next = (from == IBV_QPS_RESET && to == IBV_QPS_INIT) || (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
		(from == IBV_QPS_RTR && to == IBV_QPS_RTS);

	return IBV_QP_STATE | (next ? types[type].needs[to] : 0);
}

static struct ibv_qp *qps[sizeof(types) / sizeof(*types)];

/* at takes the QP of a type to a state, of those that verbs lead to. rdma_rxe takes long to make and destroy one. */
static struct ibv_qp *at(size_t type, enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr unused;
	struct ibv_qp *qp;

	if (!qps[type] || ibv_modify_qp(qps[type], &a, IBV_QP_STATE)) /* rdma_rxe: one that drains */
		IS(0, new_qp(types[type].type, &qps[type]));
	qp = qps[type];
	if (state == IBV_QPS_ERR) {
		a = good(IBV_QPS_INIT, IBV_QPS_RESET);
		IS(0, ibv_modify_qp(qp, &a, needs(type, IBV_QPS_RESET, IBV_QPS_INIT)));
		a.qp_state = IBV_QPS_ERR;
		IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	}
	for (int i = 1; i < 5 && state != IBV_QPS_ERR && way[i - 1] != state; i++) {
		a = good(way[i], way[i - 1]);
		IS(0, ibv_modify_qp(qp, &a, needs(type, way[i - 1], way[i])));
	}
	do
		IS(0, ibv_query_qp(qp, &a, IBV_QP_STATE, &unused));
	while (a.sq_draining); /* until then rdma_rxe refuses everything */
	return qp;
}

static int try_modify(size_t type, enum ibv_qp_state from, struct ibv_qp_attr a, int mask)
{
	return ibv_modify_qp(at(type, from), &a, mask);
}

static const struct {
	int bit;
	const char *name;
} bits[] = {
	{IBV_QP_CUR_STATE, "CUR_STATE"}, {IBV_QP_EN_SQD_ASYNC_NOTIFY, "SQD_NOTIFY"}, {IBV_QP_ACCESS_FLAGS, "ACCESS"},
	{IBV_QP_PKEY_INDEX, "PKEY"}, {IBV_QP_PORT, "PORT"}, {IBV_QP_QKEY, "QKEY"}, {IBV_QP_AV, "AV"},
	{IBV_QP_PATH_MTU, "MTU"}, {IBV_QP_TIMEOUT, "TIMEOUT"}, {IBV_QP_RETRY_CNT, "RETRY"},
	{IBV_QP_RNR_RETRY, "RNR_RETRY"}, {IBV_QP_RQ_PSN, "RQ_PSN"}, {IBV_QP_MAX_QP_RD_ATOMIC, "RD_ATOMIC"},
	{IBV_QP_ALT_PATH, "ALT"}, {IBV_QP_MIN_RNR_TIMER, "RNR_TIMER"}, {IBV_QP_SQ_PSN, "SQ_PSN"},
	{IBV_QP_MAX_DEST_RD_ATOMIC, "DEST_RD_ATOMIC"}, {IBV_QP_PATH_MIG_STATE, "MIG"}, {IBV_QP_CAP, "CAP"},
	{IBV_QP_DEST_QPN, "DEST_QPN"}, {IBV_QP_RATE_LIMIT, "RATE"}, {1 << 22, "bit 22"}, {1 << 30, "bit 30"},
};

/* transition: what a change of state takes. A bit of which the line says nothing changes nothing. */
static void transition(size_t type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	int mask = needs(type, from, to), plain = try_modify(type, from, good(to, from), mask);

	printf("%s %s to %s: %s", types[type].name, states[from], states[to], name_of(plain));
	for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++) {
		int err = try_modify(type, from, good(to, from), mask ^ bits[i].bit);
		if (err != plain)
			printf(", %s %s %s", mask & bits[i].bit ? "without" : "with", bits[i].name, name_of(err));
	}
	printf("\n");
}

/* values: attributes with values at the ends of their ranges, in the change that takes them. */
#define VALUE(from, to, mask, field, v)                                                                         \
	do {                                                                                                    \
		struct ibv_qp_attr a_ = good(to, from);                                                         \
		a_.field = (v);                                                                                 \
		printf("%s %s %#x: %s\n", #to, #field, (unsigned int)(v),                                       \
		       name_of(try_modify(0, from, a_, needs(0, from, to) | (mask))));                          \
	} while (0)

static void values(void)
{
	static const uint32_t access[] = {0, 1, 8, 15, 16, 32, 64, 128, 256, 512, 1 << 10, 1 << 15, 1 << 19, 1 << 20, 1u << 31};
	static const int mtus[] = {0, IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096, 6, 7};
	static const int lines[] = {0, 5, 6, 7, 8, 255}, timers[] = {0, 31, 32, 255}, atomics[] = {0, 128, 129, 255};
	static const uint32_t numbers[] = {0, 1, 2, 0xFFFFFE, 0xFFFFFF};

	for (size_t i = 0; i < sizeof(access) / sizeof(*access); i++)
		VALUE(IBV_QPS_RESET, IBV_QPS_INIT, 0, qp_access_flags, access[i]);
	for (size_t i = 0; i < sizeof(mtus) / sizeof(*mtus); i++)
		VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, path_mtu, mtus[i]);
	for (size_t i = 0; i < sizeof(atomics) / sizeof(*atomics); i++) {
		VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, max_dest_rd_atomic, atomics[i]);
		VALUE(IBV_QPS_RTR, IBV_QPS_RTS, 0, max_rd_atomic, atomics[i]);
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, dest_qp_num, numbers[i]);
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		VALUE(IBV_QPS_RTR, IBV_QPS_RTS, 0, retry_cnt, lines[i]);
		VALUE(IBV_QPS_RTR, IBV_QPS_RTS, 0, rnr_retry, lines[i]);
	}
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		VALUE(IBV_QPS_RTR, IBV_QPS_RTS, 0, timeout, timers[i]);
		VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, min_rnr_timer, timers[i]);
	}
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, 0, pkey_index, 1);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, 0, port_num, 2);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTS);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTS);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_INIT);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_CUR_STATE, cur_qp_state, 9);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, qp_state, 7);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, ah_attr.is_global, 0);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, ah_attr.port_num, 0);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, ah_attr.port_num, 2);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, 0, ah_attr.grh.sgid_index, EMPTY);
}

/* creation: queue pairs of each type, with nothing else wrong. */
static void creation(void)
{
	static const struct {
		const char *name;
		int type;
	} list[] = {{"RC", IBV_QPT_RC}, {"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}, {"0", 0}, {"1", 1}, {"5", 5}, {"7", 7},
		{"100", 100}, {"RAW_PACKET", IBV_QPT_RAW_PACKET}, {"DRIVER", IBV_QPT_DRIVER}};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		struct ibv_qp *qp;
		printf("create_qp of type %s: %s\n", list[i].name, name_of(new_qp(list[i].type, &qp)));
	}
	for (int bit = 0; bit < 32; bit++) {
		int access = (int)(1u << bit | IBV_ACCESS_LOCAL_WRITE);
		if (access & IBV_ACCESS_HUGETLB || access & IBV_ACCESS_ON_DEMAND)
			continue;
		printf("reg_mr with access %#x: %s\n", (unsigned int)access,
		       name_of(made(ibv_reg_mr(pd, buf, 4096, access))));
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_first();
	find_rows();
	creation();
	address_handles();
	values();
	for (size_t type = 0; type < sizeof(types) / sizeof(*types); type++) {
		for (int from = 0; from <= IBV_QPS_ERR; from++) {
			for (int to = 0; to <= IBV_QPS_ERR && from != IBV_QPS_SQE; to++)
				transition(type, (enum ibv_qp_state)from, (enum ibv_qp_state)to);
		}
	}
	handles();
	return 0;
}
