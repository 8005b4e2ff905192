/*
 * Asynchronous events. A message on the context's socket (mailbox.c) has the type of an event and a handle; the
 * program gets a pointer to the object. It must not get one to freed memory: to destroy an object waits until the
 * program has acknowledged all events of it that it has taken (ibv_get_async_event(3)). Events that were taken are
 * counted under the lock of the table of objects, those that were acknowledged under the object's own mutex, which is
 * part of the ABI.
 */
#include "lib.h"

enum { EVENT_WORDS = sizeof(struct goroce_event) / sizeof(uint32_t) };

struct taking {
	struct context *context;
	struct ibv_async_event *event; /* NULL if events are only looked at */
};

/* kind_of returns the kind of object that a type of event is about: -1 for the device. */
static int kind_of(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return KIND_CQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return KIND_SRQ;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return KIND_QP;
	}
	return type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_PATH_MIG_ERR ? KIND_QP : -1;
}

/* name fills in an event of an object. It returns false if objects of that kind have no events of that type: the
 * program would take the pointer for one of another struct. */
static bool name(const struct entry *e, uint32_t type, struct ibv_async_event *to)
{
	if (kind_of(type) != (int)e->kind)
		return false;
	if (to) {
		to->element.qp = e->object; /* or CQ, or SRQ: all are pointers */
		to->event_type = type;
	}
	return true;
}

/*
 * live_event reports whether an event is of the device or of an object that is there, and fills it in. The mailbox's
 * lock is held. The object is found, and the event counted, under one lock: whoever destroys the object either takes it
 * out of the table before, or waits until this event is acknowledged, too.
 */
static bool live_event(void *arg, const uint32_t *message, bool take)
{
	struct taking *t = arg;
	uint32_t type = message[0], handle = message[1];
	struct entry *e;
	bool live;

	if (!handle) {
		if (kind_of(type) >= 0)
			return false;
		if (take) {
			t->event->event_type = type;
			t->event->element.port_num = PORT;
		}
		return true;
	}
	pthread_mutex_lock(&t->context->objects.lock);
	e = table_find(&t->context->objects, handle);
	live = e && name(e, type, take ? t->event : NULL);
	if (live && take)
		++*e->taken;
	pthread_mutex_unlock(&t->context->objects.lock);
	return live;
}

/* async_await waits until the program has acknowledged the events of an object that it has taken. */
void async_await(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked, uint32_t taken)
{
	pthread_mutex_lock(mutex);
	while (*acked != taken)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/* async_closed is called when an object is gone, of which the daemon has sent and the program taken so many events.
 * The object is not in the table any more: its events are not live, and taken does not change. */
void async_closed(struct context *c, uint32_t sent, uint32_t taken)
{
	struct taking t = {c, NULL};

	if (sent > taken)
		mailbox_expect_stale(&c->events, sent - taken, EVENT_WORDS, live_event, &t);
}

/*
 * tell_fatal reports that the daemon has ended and closed its socket: once by an event, afterwards by EIO. The
 * connection is marked as ended first. The thread that watches it may not have run yet, and what the program calls
 * after the event must fail.
 */
static int tell_fatal(struct context *c, struct ibv_async_event *event)
{
	bool told;

	control_end(&c->control, EIO);
	pthread_mutex_lock(&c->objects.lock);
	told = c->fatal_told;
	c->fatal_told = true;
	pthread_mutex_unlock(&c->objects.lock);
	if (told)
		return EIO;
	event->event_type = IBV_EVENT_DEVICE_FATAL;
	event->element.port_num = 0;
	return 0;
}

/*
 * ibv_get_async_event goes on when ready returns EIO: the socket may have events of before the daemon's end, and the
 * last is IBV_EVENT_DEVICE_FATAL. A forked child connects by this call, too, since its events come on its own
 * connection; with ENODEV it has none, and no mailbox.
 */
EXPORT int ibv_get_async_event(struct ibv_context *v, struct ibv_async_event *event)
{
	struct context *c = context_of(v);
	struct taking t = {c, event};
	int err = ready(v);

	if (err != ENODEV)
		err = mailbox_enter(&c->events);
	if (!err) {
		pthread_cleanup_push(mailbox_leave, &c->events);
		err = mailbox_take(&c->events, EVENT_WORDS, live_event, &t);
		if (err == EIO || err == ECONNRESET)
			err = tell_fatal(c, event);
		pthread_cleanup_pop(true);
	}
	if (!err)
		return 0;
	errno = err;
	return -1;
}

/* acknowledge wakes whoever waits in a destroying call (async_await, or wait_for_acks of cq.c). */
static void acknowledge(pthread_mutex_t *lock, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(lock);
	++*completed;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(lock);
}

/* ibv_ack_async_event does nothing for events of the device, for which nobody waits. */
EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (kind_of(event->event_type)) {
	case KIND_CQ:
		if (!inherited(cq_of(cq)->born)) /* else the mutex may stay locked */
			acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case KIND_SRQ:
		if (!inherited(srq_of(srq)->born))
			acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case KIND_QP:
		if (!inherited(qp_of(qp)->born))
			acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
}
