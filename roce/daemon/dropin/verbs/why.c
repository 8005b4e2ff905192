/* GOROCE_DEBUG=1 says why a QP has failed, once it has a completion with an error. */
#include "lib.h"

#include <inttypes.h>

bool above(const char *call, const char *attr, uint64_t value, const char *limit, uint64_t most)
{
	if (value <= most)
		return false;
	debug("%s: %s is %" PRIu64 "; allowed: at most %" PRIu64 ", %s of the device", call, attr, value, most, limit);
	return true;
}

enum { GOROCE_VENDOR = 0x67 }; /* the upper byte of vendor_err of completions whose reason the daemon knows */

struct search {
	uint32_t qpn, handle;
};

/* found reports whether an entry is the QP, of which nothing was said since its reset. */
static bool found(void *arg, const struct entry *e)
{
	struct search *s = arg;
	struct qp *q = e->object;

	if (e->kind != KIND_QP || q->v.qp_num != s->qpn || atomic_exchange(&q->told, true))
		return false;
	s->handle = e->handle;
	return true;
}

static void say(uint32_t qpn, const char *what, struct goroce_failure *f)
{
	f->text[sizeof(f->text) - 1] = 0;
	if (f->reason)
		debug("QP 0x%x %s: %s", qpn, what, f->text);
}

/* why_failed prints the causes that the daemon knows, of a completion with an error. */
void why_failed(struct ibv_context *v, uint32_t qpn, uint32_t vendor_err)
{
	struct search s = {.qpn = qpn};
	struct goroce_object o;
	struct goroce_qp_failure r;

	if (vendor_err >> 8 != GOROCE_VENDOR || !debugging() || !table_any(&context_of(v)->objects, found, &s))
		return;
	o.handle = s.handle;
	if (ask(v, GOROCE_QUERY_QP_FAILURE, &o, sizeof(o), &r, sizeof(r)))
		return;
	say(qpn, "has failed", &r.failed);
	if (r.refused.at != r.failed.at)
		say(qpn, "has refused a request", &r.refused);
}
