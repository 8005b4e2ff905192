/*
 * Names of values, for messages. They are rdma-core's, word for word (TestVerbsStrings compares), as programs print
 * them. The tables are indexed by the values of the enums in infiniband/verbs.h, some of which no device here has.
 */
#include "lib.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* name returns a row of a table, or other. A negative value is converted to a large one, behind all tables. */
static const char *name(const char *const *names, size_t n, unsigned int i, const char *other)
{
	return i < n && names[i] ? names[i] : other;
}

EXPORT const char *ibv_node_type_str(int type)
{
	static const char *const names[] = {
		[1] = "InfiniBand channel adapter", [2] = "InfiniBand switch", [3] = "InfiniBand router",
		[4] = "iWARP NIC", [5] = "usNIC", [6] = "usNIC UDP", [7] = "unspecified",
	};

	return name(names, COUNT(names), (unsigned int)type, "unknown");
}

EXPORT const char *ibv_port_state_str(int state)
{
	static const char *const names[] = {
		"no state change (NOP)", "down", "init", "armed", "active", "active defer",
	};

	return name(names, COUNT(names), (unsigned int)state, "unknown");
}

EXPORT const char *ibv_event_type_str(int type)
{
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established", "send queue drained",
		"path migrated", "path migration request error", "local catastrophic error", "port active",
		"port error", "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
		"last WQE reached", "client reregistration", "GID table change", "WQ fatal",
	};

	return name(names, COUNT(names), (unsigned int)type, "unknown");
}

EXPORT const char *ibv_wc_status_str(int status)
{
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory management operation error",
		"bad response error", "local access error", "remote invalid request error", "remote access error",
		"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
		"local RDD violation error",
		"remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
		"fatal error", "response timeout error", "general error", "TM error", "TM software rendezvous",
	};

	return name(names, COUNT(names), (unsigned int)status, "unknown");
}
