/*
 * The rules of rdma_cm, as a program sees them that has both ends on one device: cm_rules ADDR4 ADDR6, the device's
 * addresses. It prints a line for each rule, which is the same on every device. It runs as an ordinary user.
 */
#include "cm_rules.h"

/* Addresses. */

static void loopback(const char *to, const char *what)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	int err = resolve(id, to, PORT);

	printf("resolve %s: %s", what, result(err));
	if (!err) {
		printf(", %s", text(next(id)));
		printf(", local %s", named(rdma_get_local_addr(id)));
		printf(", remote %s", named(rdma_get_peer_addr(id)));
	}
	printf("\n");
	end(id);
}

static void bind_one(const char *at, const char *what)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	int err = bind_to(id, at, PORT);

	printf("bind %s: %s", what, result(err));
	if (!err) {
		printf(", local %s", named(rdma_get_local_addr(id)));
		printf(", device %s", id->verbs ? "yes" : "no");
		printf(", listen %s", result(rdma_listen(id, 1)));
	}
	printf("\n");
	end(id);
}

static void addresses(void)
{
	static const struct {
		const char *addr, *what;
	} rows[] = {
		{ "127.0.0.1", "127.0.0.1" }, { "::1", "::1" }, { "0.0.0.0", "0.0.0.0" }, { "::", "::" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		loopback(rows[i].addr, rows[i].what);
		bind_one(rows[i].addr, rows[i].what);
	}
	loopback(device4, "DEVICE4");
	bind_one(device4, "DEVICE4");
	loopback(device6, "DEVICE6");
	bind_one(device6, "DEVICE6");
	bind_one("203.0.113.77", "an address of nobody");
}

/* link_local finds the link-local address of the interface that has device6; its scope is the interface's index. */
static struct sockaddr_in6 link_local(void)
{
	struct sockaddr_in6 found = { 0 };
	const char *name = NULL;
	struct ifaddrs *all;

	MUST(getifaddrs(&all) == 0);
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET6 && strcmp(named(a->ifa_addr), "DEVICE6") == 0)
			name = a->ifa_name;
	}
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		if (name && a->ifa_addr && a->ifa_addr->sa_family == AF_INET6 && strcmp(a->ifa_name, name) == 0 &&
		    strcmp(named(a->ifa_addr), "LINKLOCAL") == 0)
			memcpy(&found, a->ifa_addr, sizeof(found));
	}
	freeifaddrs(all);
	MUST(found.sin6_scope_id);
	found.sin6_port = htons(PORT);
	return found;
}

/* scope_of says whose an address's scope is. */
static const char *scope_of(const struct sockaddr *a, unsigned own)
{
	unsigned scope = ((const struct sockaddr_in6 *)a)->sin6_scope_id;

	return !scope ? "none" : scope == own ? "the interface's" : "another";
}

/* Link-local addresses with the scope that they have, and with others. */
static void scopes(void)
{
	struct sockaddr_in6 at = link_local();
	const unsigned own = at.sin6_scope_id;
	const struct {
		unsigned scope;
		const char *what;
	} rows[] = {
		{ 0, "none" }, { own, "the interface's" }, { if_nametoindex("lo"), "that of lo" }, { 9999, "nobody's" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rdma_cm_id *bound = make(RDMA_PS_TCP), *resolved = make(RDMA_PS_TCP);
		int err;

		at.sin6_scope_id = rows[i].scope;
		err = rdma_bind_addr(bound, (struct sockaddr *)&at);
		printf("scope %s: bind %s", rows[i].what, result(err));
		if (!err) {
			printf(", local %s", scope_of(rdma_get_local_addr(bound), own));
			printf(", listen %s", result(rdma_listen(bound, 1)));
		}
		err = rdma_resolve_addr(resolved, NULL, (struct sockaddr *)&at, 1000);
		printf("; resolve %s", result(err));
		if (!err) {
			printf(", %s", text(next(resolved)));
			printf(", local %s", scope_of(rdma_get_local_addr(resolved), own));
			printf(", remote %s", scope_of(rdma_get_peer_addr(resolved), own));
		}
		printf("\n");
		end(bound);
		end(resolved);
	}
}

/* Two IDs on one port. */

struct claim {
	enum rdma_port_space space;
	const char *addr;
	int reuse, afonly;
};

static int claim(struct rdma_cm_id *id, const struct claim *c)
{
	int on = 1;

	if (c->reuse)
		MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	if (c->afonly)
		MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)) == 0);
	return bind_to(id, c->addr, PORT);
}

static const char *space_name(enum rdma_port_space s)
{
	return s == RDMA_PS_TCP ? "TCP" : s == RDMA_PS_UDP ? "UDP" : s == RDMA_PS_IPOIB ? "IPOIB" : "IB";
}

static void describe(const struct claim *c)
{
	union address a = address(c->addr, 0);

	printf("%s %s%s%s", space_name(c->space), named(&a.any), c->reuse ? " REUSEADDR" : "", c->afonly ? " AFONLY" : "");
}

static void two_on_one_port(struct claim a, struct claim b)
{
	struct rdma_cm_id *first = make(a.space), *second = make(b.space);

	printf("one port, ");
	describe(&a);
	printf(" then ");
	describe(&b);
	MUST(claim(first, &a) == 0);
	if (claim(second, &b)) {
		printf(": bind %s\n", result(-1));
	} else {
		printf(": bind ok, listen %s", result(rdma_listen(first, 1)));
		printf(", %s\n", result(rdma_listen(second, 1)));
	}
	end(second);
	end(first);
}

static void ports_in_use(void)
{
	const enum rdma_port_space T = RDMA_PS_TCP, U = RDMA_PS_UDP, P = RDMA_PS_IPOIB;
	const char *any4 = "0.0.0.0", *any6 = "::";
	const struct claim rows[][2] = {
		{ { T, device4, 0, 0 }, { T, device4, 0, 0 } }, { { T, device4, 1, 0 }, { T, device4, 0, 0 } },
		{ { T, device4, 0, 0 }, { T, device4, 1, 0 } }, { { T, device4, 1, 0 }, { T, device4, 1, 0 } },
		{ { T, any4, 0, 0 }, { T, device4, 0, 0 } },	{ { T, device4, 0, 0 }, { T, any4, 0, 0 } },
		{ { T, any4, 1, 0 }, { T, device4, 1, 0 } },	{ { T, any4, 0, 0 }, { T, any6, 0, 0 } },
		{ { T, any6, 0, 0 }, { T, any4, 0, 0 } },	{ { T, any4, 0, 0 }, { T, any6, 0, 1 } },
		{ { T, any6, 0, 1 }, { T, any4, 0, 0 } },	{ { T, any6, 0, 1 }, { T, any6, 0, 1 } },
		{ { T, any6, 0, 0 }, { T, device4, 0, 0 } },	{ { T, any6, 0, 1 }, { T, device4, 0, 0 } },
		{ { T, device4, 0, 0 }, { T, device6, 0, 0 } }, { { T, device4, 0, 0 }, { U, device4, 0, 0 } },
		{ { T, device4, 0, 0 }, { P, device4, 0, 0 } }, { { U, device4, 0, 0 }, { P, device4, 0, 0 } },
		{ { U, device4, 0, 0 }, { U, device4, 0, 0 } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		two_on_one_port(rows[i][0], rows[i][1]);
}

static void ephemeral(enum rdma_port_space space)
{
	struct rdma_cm_id *id = make(space);
	int port;

	printf("port 0 of %s: %s", space_name(space), result(bind_to(id, device4, 0)));
	port = ntohs(rdma_get_src_port(id));
	printf(", %s\n", port >= 32768 ? "a port of 32768 and above" : port ? "a port below 32768" : "no port");
	end(id);
}

static void some_ports(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);

	printf("port 1023 as an ordinary user: %s\n", result(bind_to(id, device4, 1023)));
	end(id);
	id = make(RDMA_PS_TCP);
	printf("port 1024 as an ordinary user: %s\n", result(bind_to(id, device4, 1024)));
	printf("bind twice: %s\n", result(bind_to(id, device4, 1024)));
	end(id);
	ephemeral(RDMA_PS_TCP);
	ephemeral(RDMA_PS_UDP);
	id = make(RDMA_PS_TCP);
	printf("listen without a bind: %s", result(rdma_listen(id, 1)));
	printf(", port %s\n", rdma_get_src_port(id) ? "not 0" : "0");
	printf("listen twice: %s\n", result(rdma_listen(id, 1)));
	end(id);
}

/* Calls in the wrong state. */

/* wrong_calls calls what needs a request or a connection. The ID has a device: librdmacm crashes without. */
static void wrong_calls(struct rdma_cm_id *id, const char *state)
{
	struct rdma_conn_param param = with(0);

	param.qp_num = 1;
	printf("%s: disconnect %s", state, result(rdma_disconnect(id)));
	printf(", connect %s", result(rdma_connect(id, &param)));
	printf(", accept %s", result(rdma_accept(id, &param)));
	printf(", reject %s", result(rdma_reject(id, NULL, 0)));
	printf(", notify %s", result(rdma_notify(id, IBV_EVENT_COMM_EST)));
	printf(", resolve_route %s", result(rdma_resolve_route(id, 100)));
	printf(", establish %s\n", result(rdma_establish(id)));
}

static void wrong_states(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	struct pair p;

	printf("idle: local %s", named(rdma_get_local_addr(id)));
	printf(", remote %s", named(rdma_get_peer_addr(id)));
	printf(", ports %d %d\n", rdma_get_src_port(id), rdma_get_dst_port(id));
	printf("idle: notify %s\n", result(rdma_notify(id, IBV_EVENT_COMM_EST)));
	MUST(bind_to(id, device4, PORT) == 0);
	wrong_calls(id, "bound");
	MUST(rdma_listen(id, 1) == 0);
	wrong_calls(id, "listening");
	end(id);

	p = connected();
	printf("connected: connect %s", result(ask(p.active, 0)));
	printf(", accept %s", result(answer(p.passive, 0)));
	printf(", reject %s", result(rdma_reject(p.passive, NULL, 0)));
	printf(", listen %s", result(rdma_listen(p.active, 1)));
	printf(", bind %s\n", result(bind_to(p.active, device4, 0)));
	printf("disconnect: %s", result(rdma_disconnect(p.active)));
	printf(", passive %s\n", text(next(p.listener)));
	printf("before the passive end disconnects: active %s\n", readable(p.active, 1000) ? "an event" : "no event");
	printf("disconnect: passive %s", result(rdma_disconnect(p.passive)));
	printf(", active %s\n", text(next(p.active)));
	printf("second disconnect: active %s", result(rdma_disconnect(p.active)));
	printf(", passive %s\n", result(rdma_disconnect(p.passive)));
	printf("timewait: active %s", text(next(p.active)));
	printf(", passive %s\n", text(next(p.listener)));
	end_pair(&p);
}

/* Requests, answers and refusals. */

static void show(const char *what, struct seen s)
{
	unsigned used = s.len;

	while (used && !s.data[used - 1])
		used--;
	printf("%s: %s, %u bytes of private data, %u used\n", what, text(s), s.len, used);
}

static void params(const char *what, const struct rdma_conn_param *c)
{
	printf("%s: responder_resources %d initiator_depth %d flow_control %d retry_count %d rnr_retry_count %d srq %d\n",
	       what, c->responder_resources, c->initiator_depth, c->flow_control, c->retry_count, c->rnr_retry_count,
	       c->srq);
}

static void attributes(const char *what, struct rdma_cm_id *id)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS }, b = { .qp_state = IBV_QPS_RTR }, c = b;
	int mask;

	MUST(rdma_init_qp_attr(id, &a, &mask) == 0);
	printf("%s: RTS mask %#x retry_cnt %d rnr_retry %d", what, mask, a.retry_cnt, a.rnr_retry);
	MUST(rdma_init_qp_attr(id, &b, &mask) == 0);
	MUST(rdma_init_qp_attr(id, &c, &mask) == 0);
	printf(", RTR mask %#x min_rnr_timer %d, first PSN twice the %s, depth %d %d\n", mask, b.min_rnr_timer,
	       b.rq_psn == c.rq_psn ? "same" : "other", a.max_rd_atomic, b.max_dest_rd_atomic);
}

static void above_seven(void)
{
	struct pair p = { .listener = listening(RDMA_PS_TCP, 4), .active = routed(RDMA_PS_TCP, PORT) };
	struct rdma_conn_param param = with(0);
	struct seen s;

	param.retry_count = 9;
	param.rnr_retry_count = 200;
	param.responder_resources = 3;
	param.initiator_depth = 2;
	printf("connect with retry_count 9, rnr_retry_count 200: %s\n", result(rdma_connect(p.active, &param)));
	s = next(p.listener);
	p.passive = s.id;
	params("its request", &s.conn);
	attributes("the request's attributes", p.passive);
	MUST(create_qp(p.passive) == 0);
	param = with(0);
	param.rnr_retry_count = 9;
	printf("accept with rnr_retry_count 9: %s\n", result(rdma_accept(p.passive, &param)));
	s = next(p.active);
	show("established, active", s);
	params("established, active", &s.conn);
	s = next(p.listener);
	show("established, passive", s);
	params("established, passive", &s.conn);
	attributes("the active end's attributes", p.active);
	end_pair(&p);
}

static void connect_lengths(enum rdma_port_space space, unsigned most)
{
	struct pair p = { .listener = listening(space, 4), .active = routed(space, PORT) };

	printf("%s connect with %u bytes: %s\n", space_name(space), most + 1, result(ask(p.active, most + 1)));
	printf("%s connect with %u bytes: %s\n", space_name(space), most, result(ask(p.active, most)));
	printf("%s connect twice: %s\n", space_name(space), result(ask(p.active, 0)));
	p.request = next(p.listener);
	show("its request", p.request);
	p.passive = p.request.id;
	end_pair(&p);
}

static void accept_lengths(enum rdma_port_space space, unsigned most)
{
	struct pair p = requested(space);

	printf("%s accept with %u bytes: %s\n", space_name(space), most, result(answer(p.passive, most)));
	show("its event", next(p.active));
	end_pair(&p);
	p = requested(space);
	printf("%s accept with %u bytes: %s\n", space_name(space), most + 1, result(answer(p.passive, most + 1)));
	end_pair(&p);
}

static void reject_lengths(enum rdma_port_space space, unsigned most)
{
	struct pair p = requested(space);
	struct rdma_conn_param param = with(most);

	printf("%s reject with %u bytes: %s", space_name(space), most + 1,
	       result(rdma_reject(p.passive, param.private_data, most + 1)));
	printf(", with %u: %s\n", most, result(rdma_reject(p.passive, param.private_data, most)));
	show("its event", next(p.active));
	printf("%s rejected: reject again %s", space_name(space), result(rdma_reject(p.passive, NULL, 0)));
	printf(", disconnect %s", result(rdma_disconnect(p.passive)));
	printf(", active disconnect %s\n", result(rdma_disconnect(p.active)));
	end_pair(&p);
}

/* destroyed_listener: requests of which the program has not taken the event end with their listener. A later request,
 * to another listener, says that they have come. */
static void destroyed_listener(void)
{
	struct rdma_cm_id *l = listening(RDMA_PS_TCP, 4), *ids[3];
	struct pair later;

	for (int i = 0; i < 3; i++) {
		ids[i] = routed(RDMA_PS_TCP, PORT);
		MUST(ask(ids[i], 0) == 0);
	}
	later = requested(RDMA_PS_UDP);
	end(l);
	for (int i = 0; i < 3; i++) {
		printf("TCP, request %d, ", i + 1);
		show("listener destroyed", next(ids[i]));
		end(ids[i]);
	}
	end_pair(&later);
}

static void refusals(void)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP };
	struct rdma_cm_id *id;
	struct pair p;

	for (int i = 0; i < 2; i++) {
		id = routed(spaces[i], PORT);
		MUST(ask(id, 0) == 0);
		printf("%s, ", space_name(spaces[i]));
		show("no listener", next(id));
		end(id);
		p = requested(spaces[i]);
		MUST(rdma_destroy_id(p.passive) == 0);
		printf("%s, ", space_name(spaces[i]));
		show("request destroyed", next(p.active));
		end(p.active);
		end(p.listener);
	}
	p = requested(RDMA_PS_TCP);
	MUST(answer(p.passive, 0) == 0);
	printf("accept twice: %s\n", result(answer(p.passive, 0)));
	end_pair(&p);
	p = requested(RDMA_PS_TCP);
	end(p.active);
	printf("the active end destroyed before the answer: %s\n", readable(p.listener, 1000) ? "an event" : "no event");
	MUST(rdma_destroy_id(p.passive) == 0);
	end(p.listener);
}

/* Options, groups, channels. */

static void option(struct rdma_cm_id *id, const char *state, int level, int name, const char *what, size_t len)
{
	unsigned char value[64] = { 1 };

	printf("%s: set %s of %zu bytes: %s\n", state, what, len, result(rdma_set_option(id, level, name, value, len)));
}

/* How many READs and atomics each end accepts, and may have outstanding. */

struct depth {
	uint8_t responder, initiator;
};

static void qp_depth(const char *end, struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	MUST(ibv_query_qp(id->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init) == 0);
	printf(", %s's QP %d %d", end, attr.max_dest_rd_atomic, attr.max_rd_atomic);
}

static void depth(struct depth asks, struct depth answers)
{
	struct pair p = { .listener = listening(RDMA_PS_TCP, 1), .active = routed(RDMA_PS_TCP, PORT) };
	struct rdma_conn_param req = with(0), rep = with(0);
	struct seen response;

	req.responder_resources = asks.responder;
	req.initiator_depth = asks.initiator;
	MUST(rdma_connect(p.active, &req) == 0);
	p.request = next(p.listener);
	p.passive = p.request.id;
	printf("REQ %d %d: seen as %d %d", asks.responder, asks.initiator, p.request.conn.responder_resources,
	       p.request.conn.initiator_depth);
	MUST(create_qp(p.passive) == 0);
	rep.responder_resources = answers.responder;
	rep.initiator_depth = answers.initiator;
	MUST(rdma_accept(p.passive, &rep) == 0);
	response = next(p.active);
	MUST(response.type == RDMA_CM_EVENT_ESTABLISHED);
	printf("; REP %d %d: seen as %d %d", answers.responder, answers.initiator, response.conn.responder_resources,
	       response.conn.initiator_depth);
	qp_depth("active", p.active);
	qp_depth("passive", p.passive);
	printf("\n");
	end_pair(&p);
}

static void depths(void)
{
	static const struct depth rows[][2] = {
		{ { 0, 0 }, { 1, 1 } },	   { { 4, 16 }, { 4, 16 } },	 { { 1, 1 }, { 16, 0 } },
		{ { 16, 0 }, { 0, 16 } }, { { 0, 16 }, { 255, 255 } }, { { 255, 255 }, { 255, 255 } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		depth(rows[i][0], rows[i][1]);
}

static void options_of(struct rdma_cm_id *id, const char *state)
{
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, "TOS", 1);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, "TOS", 4);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, "REUSEADDR", 4);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, "REUSEADDR", 1);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, "AFONLY", 4);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, "AFONLY", 8);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, "ACK_TIMEOUT", 1);
	option(id, state, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, "ACK_TIMEOUT", 2);
	option(id, state, RDMA_OPTION_ID, 99, "option 99", 1);
	option(id, state, 99, 0, "level 99", 1);
	option(id, state, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, "IB_PATH", 0);
	option(id, state, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, "IB_PATH", 5);
}

static void options(void)
{
	struct rdma_cm_id *id = make(RDMA_PS_TCP);

	options_of(id, "idle");
	MUST(bind_to(id, device4, PORT) == 0);
	options_of(id, "bound");
	MUST(rdma_listen(id, 1) == 0);
	options_of(id, "listening");
	end(id);
	id = routed(RDMA_PS_TCP, PORT);
	options_of(id, "routed");
	end(id);
}

static void groups(void)
{
	union address g = address("239.1.2.3", 0), other = address("239.1.2.4", 0);
	struct rdma_cm_id *id = make(RDMA_PS_UDP);

	printf("join of an idle ID: %s\n", result(rdma_join_multicast(id, &g.any, NULL)));
	end(id);
	id = make(RDMA_PS_UDP);
	MUST(bind_to(id, device4, 0) == 0);
	MUST(create_qp(id) == 0);
	printf("join: %s", result(rdma_join_multicast(id, &g.any, NULL)));
	printf(", %s\n", text(next(id)));
	printf("second join: %s", result(rdma_join_multicast(id, &g.any, NULL)));
	printf(", %s\n", text(next(id)));
	printf("leave of another group: %s\n", result(rdma_leave_multicast(id, &other.any)));
	printf("leave: %s", result(rdma_leave_multicast(id, &g.any)));
	printf(", second %s", result(rdma_leave_multicast(id, &g.any)));
	printf(", third %s\n", result(rdma_leave_multicast(id, &g.any)));
	end(id);
}

static void migration(void)
{
	struct rdma_event_channel *old, *to = rdma_create_event_channel();
	struct rdma_cm_id *id = make(RDMA_PS_TCP);
	struct pollfd p[2];

	MUST(to);
	old = id->channel;
	MUST(resolve(id, device4, PORT) == 0);
	p[0] = (struct pollfd){ .fd = old->fd, .events = POLLIN };
	MUST(poll(p, 1, PATIENCE_MS) == 1);
	printf("migrate with an event: %s", result(rdma_migrate_id(id, to)));
	p[1] = (struct pollfd){ .fd = to->fd, .events = POLLIN };
	MUST(poll(p, 2, PATIENCE_MS) >= 0);
	printf(", old channel %s, new channel %s\n", p[0].revents ? "readable" : "quiet",
	       p[1].revents ? "readable" : "quiet");
	rdma_destroy_event_channel(old);
	printf("the old channel destroyed: %s", text(next(id)));
	printf(", resolve_route %s", result(rdma_resolve_route(id, 2000)));
	printf(", %s\n", text(next(id)));
	end(id);
}

static void duplicate(void)
{
	struct rdma_cm_id *l = listening(RDMA_PS_TCP, 4), *other = make(RDMA_PS_TCP);
	int fd = dup(l->channel->fd);

	MUST(fd >= 0);
	MUST(close(l->channel->fd) == 0);
	printf("a channel with a duplicate, closed: bind of its port %s", result(bind_to(other, device4, PORT)));
	MUST(dup2(fd, l->channel->fd) >= 0);
	close(fd);
	printf(", second bind of its listener, by the duplicate, %s\n", result(bind_to(l, device4, PORT)));
	end(other);
	end(l);
}

static void backlogs(int backlog, int calls)
{
	struct rdma_cm_id *l = listening(RDMA_PS_TCP, backlog), *ids[4];

	printf("backlog %d, %d requests:", backlog, calls);
	for (int i = 0; i < calls; i++) {
		ids[i] = routed(RDMA_PS_TCP, PORT);
		MUST(ask(ids[i], 0) == 0);
	}
	for (int i = 0; i < calls; i++) {
		printf(" %s", readable(ids[i], 1000) ? text(next(ids[i])) : "waits");
		printf(i + 1 < calls ? "," : "\n");
	}
	for (int i = 0; i < calls; i++)
		end(ids[i]);
	end(l);
}

int main(int argc, char **argv)
{
	MUST(argc == 3);
	if (geteuid() == 0) {
		MUST(setresgid(65534, 65534, 65534) == 0);
		MUST(setresuid(65534, 65534, 65534) == 0);
	}
	device4 = argv[1];
	device6 = argv[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	addresses();
	scopes();
	ports_in_use();
	some_ports();
	above_seven();
	connect_lengths(RDMA_PS_TCP, 56);
	connect_lengths(RDMA_PS_UDP, 180);
	accept_lengths(RDMA_PS_TCP, 196);
	accept_lengths(RDMA_PS_UDP, 136);
	reject_lengths(RDMA_PS_TCP, 148);
	reject_lengths(RDMA_PS_UDP, 136);
	refusals();
	destroyed_listener();
	depths();
	options();
	groups();
	migration();
	duplicate();
	backlogs(0, 3);
	backlogs(1, 3);
	backlogs(2, 4);
	wrong_states();
	return 0;
}
