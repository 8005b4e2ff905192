/*
 * GET_EVENT: the next event of a channel, which the program waits for unless the descriptor has O_NONBLOCK. Events
 * are at the daemon, and asked for one by one. The socket has a message while events wait there, for poll and for
 * waiting here; the message is taken off when the daemon says that no event is left. Several threads may wait on one
 * channel: each asks again when it has been woken, and may find that another was faster.
 *
 * When the daemon has ended, events are made here from what the process knows of its IDs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>
#include <sys/socket.h>

#include "cm.h"

/* Types of events, and of QPs. */
enum { ADDR_RESOLVED = 0, CONNECT_REQUEST = 4, CONNECT_RESPONSE = 5, ESTABLISHED = 9, DEVICE_REMOVAL = 11,
       MULTICAST_JOIN = 12, MULTICAST_ERROR = 13 };
enum { QPT_UD = 4 };

/* private_len bounds what the daemon says by what there is. */
static uint8_t private_len(const struct goroce_cm_event *e)
{
	size_t n = e->param.private_len;

	return n < sizeof(e->private_data) ? n : sizeof(e->private_data);
}

/* conn_out writes the parameters as cma.c does: none for ESTABLISHED (an RTU), no retry count for a REP. */
static void conn_out(const struct goroce_cm_event *e, struct rdma_ucm_conn_param *to)
{
	if (e->type == ESTABLISHED)
		return;
	to->qp_num = e->param.qpn;
	to->qkey = e->param.qkey;
	to->srq = e->param.srq;
	to->responder_resources = e->param.responder_resources;
	to->initiator_depth = e->param.initiator_depth;
	to->retry_count = e->type == CONNECT_RESPONSE ? 0 : e->param.retry_count;
	to->rnr_retry_count = e->param.rnr_retry;
	to->private_data_len = private_len(e);
	memcpy(to->private_data, e->private_data, to->private_data_len);
}

static void ud_out(const struct goroce_cm_event *e, struct rdma_ucm_ud_param *to)
{
	to->qp_num = e->param.qpn;
	to->qkey = e->param.qkey;
	cm_ah_out(&e->ah, &to->ah_attr);
	to->private_data_len = private_len(e);
	memcpy(to->private_data, e->private_data, to->private_data_len);
}

/* event_out writes the response. librdmacm finds the ID, or the membership, by uid, the program's cookie. A connect
 * request has the cookie of the listener, and the number of the new ID. */
static void event_out(const struct goroce_cm_event *e, struct rdma_ucm_event_resp *to)
{
	memset(to, 0, sizeof(*to));
	to->uid = e->cookie;
	to->id = e->id;
	if (e->type == MULTICAST_JOIN || e->type == MULTICAST_ERROR)
		to->id = e->listener; /* the membership */
	to->event = e->type;
	to->status = (uint32_t)e->status;
	if (e->service == QPT_UD)
		ud_out(e, &to->param.ud);
	else
		conn_out(e, &to->param.conn);
}

/* wait waits until the socket is readable, as its flags and the handlers of signals say: EAGAIN with O_NONBLOCK,
 * EINTR after a handler without SA_RESTART. The message stays for others. The end of the socket is that of the
 * daemon. */
static int wait(const struct cm_channel *ch)
{
	char byte;
	ssize_t n = recv(ch->fd, &byte, sizeof(byte), MSG_PEEK);

	if (n < 0)
		return errno;
	if (n == 0)
		cm_end(ch->session);
	return 0;
}

/* removal makes the next event of a channel whose daemon has ended: one for each ID that is on a device. After the
 * last one it is EIO, each time. */
static int removal(const struct cm_channel *ch, struct goroce_cm_event *e)
{
	struct cm_id id;

	if (!cm_ids_removed(cm_ids(ch->session), ch->handle, &id)) {
		cm_silence(ch);
		return EIO;
	}
	*e = (struct goroce_cm_event){ .type = DEVICE_REMOVAL, .id = id.handle, .cookie = id.cookie };
	return 0;
}

/* note keeps what an event says of IDs, for the time when the daemon has ended. Without memory for a new ID the event
 * is delivered all the same: only the end of the daemon will not be reported for that ID. */
static void note(const struct cm_command *c, const struct goroce_cm_event *e)
{
	struct cm_ids *ids = cm_ids(c->ch.session);
	struct cm_id made = { .handle = e->id, .channel = c->ch.handle, .placed = true };

	cm_ids_change(ids, e->type == CONNECT_REQUEST ? e->listener : e->id, cm_id_counted, 1);
	if (e->type == ADDR_RESOLVED)
		cm_ids_change(ids, e->id, cm_id_placed, 0);
	if (e->type == CONNECT_REQUEST)
		cm_ids_add(ids, made);
}

/* next takes the next event. It drops those of a new ID that accept has given no cookie yet, except its request. */
static int next(const struct cm_command *c, struct goroce_cm_event *e)
{
	const struct goroce_object channel = { .handle = c->ch.handle };
	int err;

	for (;;) {
		err = cm_request(c, GOROCE_TAKE_EVENT, &channel, sizeof(channel), e, sizeof(*e));
		if (err && cm_ended(c->ch.session))
			return removal(&c->ch, e);
		if (err)
			return err == ENOENT ? EBADF : err;
		cm_drain(c->ch.fd, e->signals);
		if (e->type == GOROCE_CM_NO_EVENT) {
			err = wait(&c->ch);
		} else if (e->cookie || e->type == CONNECT_REQUEST) {
			note(c, e);
			return 0;
		}
		if (err)
			return err;
	}
}

/* cm_get_event looks at the address of the response first: an event that was taken cannot be given back. */
int cm_get_event(struct cm_command *c)
{
	const struct rdma_ucm_get_event *in = (void *)c->in;
	struct rdma_ucm_event_resp resp;
	struct goroce_cm_event e;
	int err;

	err = cm_writable(c, in->response, sizeof(resp));
	if (!err)
		err = next(c, &e);
	if (err)
		return err;
	event_out(&e, &resp);
	return cm_respond(c, in->response, &resp, sizeof(resp));
}
