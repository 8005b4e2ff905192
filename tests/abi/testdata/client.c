/* A client of goroced, written from docs/abi.md alone: two queue pairs of its own, of
 * which one sends to the other and then writes to its memory. Two more connect by address,
 * and one sends to the other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "goroce.h"

static int control;
static uint32_t seq;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* request sends a message and receives the reply, of which exactly size bytes are
 * expected, and up to 16 descriptors. */
static void request(uint16_t op, const void *body, size_t len, int fd, void *reply, size_t size, int *fds)
{
	static char out[16384], in[16384];
	struct goroce_header head = {op, 0, ++seq};
	union { char space[CMSG_SPACE(16 * sizeof(int))]; struct cmsghdr align; } rights;
	struct iovec iov = {out, sizeof(head) + len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	memcpy(out, &head, sizeof(head));
	if (len)
		memcpy(out + sizeof(head), body, len);
	if (fd >= 0) {
		memset(&rights, 0, sizeof(rights));
		msg.msg_control = rights.space;
		msg.msg_controllen = CMSG_SPACE(sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	if (sendmsg(control, &msg, 0) < 0)
		die("send");

	iov = (struct iovec){in, sizeof(in)};
	msg = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1, .msg_control = rights.space,
		.msg_controllen = sizeof(rights)};
	ssize_t n = recvmsg(control, &msg, 0);
	if (n < (ssize_t)sizeof(head))
		die("receive");
	memcpy(&head, in, sizeof(head));
	if (head.op != op || head.seq != seq) {
		fprintf(stderr, "request %u was answered as %u\n", op, head.op);
		exit(1);
	}
	if (head.status) {
		char *text = in + sizeof(head);
		for (int i = 0; i < 4; i++) {
			uint16_t length;
			memcpy(&length, text, sizeof(length));
			fprintf(stderr, "%.*s; ", length, text + sizeof(length));
			text += sizeof(length) + length;
		}
		fprintf(stderr, "status %u\n", head.status);
		exit(1);
	}
	if ((size_t)n - sizeof(head) != size) {
		fprintf(stderr, "the reply to request %u has %zd bytes, not %zu\n", op, n - (ssize_t)sizeof(head), size);
		exit(1);
	}
	if (size)
		memcpy(reply, in + sizeof(head), size);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c && fds; c = CMSG_NXTHDR(&msg, c))
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
}

/* share returns size bytes of a new memfd, to send along with a request. */
static void *share(size_t size, int *fd)
{
	*fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0 || ftruncate(*fd, (off_t)size) < 0 || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		die("memfd");
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The sizes of rings whose entries are a power of two, and whose requests have no inline bytes. */
static size_t send_size(uint32_t entries, uint32_t sges) { return 256 + entries * round_up(64 + 16 * sges, 64); }
static size_t recv_size(uint32_t entries, uint32_t sges) { return 256 + entries * round_up(16 + 16 * sges, 64); }
static size_t cq_size(uint32_t entries) { return 256 + entries * 64; }

/* The words of a ring that both sides read. */
static _Atomic uint32_t *word(char *ring, int offset) { return (_Atomic uint32_t *)(ring + offset); }
enum { producer = 64, consumer = 128, wake = 192, slots = 256 };

struct qp {
	uint32_t handle, qpn, doorbell, shard;
	char    *send, *recv;
	uint32_t sent, posted; /* producer indices */
};

static char *doorbells;
static size_t doorbells_size;
static int eventfds[16];

static void ring_doorbell(struct qp *q)
{
	char *b = doorbells + q->shard * doorbells_size;
	struct goroce_doorbells_header *h = (void *)b;
	uint32_t tops = h->doorbells / 4096;
	_Atomic uint64_t *top = (void *)(b + 128), *bit = (void *)(b + 128 + (tops + 7) / 8 * 64);
	atomic_fetch_or(&bit[q->doorbell / 64], 1ull << q->doorbell % 64);
	atomic_fetch_or(&top[q->doorbell / 4096], 1ull << q->doorbell / 64 % 64);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(word(b, 64)) && atomic_exchange(word(b, 64), 0)) {
		uint64_t one = 1;
		if (write(eventfds[q->shard], &one, sizeof(one)) < 0)
			die("doorbell");
	}
}

static void *slot(char *ring, uint32_t index)
{
	struct goroce_ring_header *h = (void *)ring;
	return ring + slots + (size_t)(index & (h->entries - 1)) * h->slot_size;
}

static void publish(struct qp *q, char *ring, uint32_t index)
{
	atomic_store_explicit(word(ring, producer), index, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(word(ring, wake)) && atomic_exchange(word(ring, wake), 0))
		ring_doorbell(q);
}

static struct qp create_qp(uint32_t pd, uint32_t cq)
{
	struct goroce_create_qp r = {.pd = pd, .send_cq = cq, .recv_cq = cq, .type = 2 /* IBV_QPT_RC */,
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
	struct goroce_ring made;
	int fd;
	char *rings = share(send_size(4, 1) + recv_size(4, 1), &fd);
	request(20, &r, sizeof(r), fd, &made, sizeof(made), NULL);
	close(fd);
	return (struct qp){.handle = made.handle, .qpn = made.num, .doorbell = made.doorbell, .shard = made.shard,
		.send = rings, .recv = rings + made.send};
}

static void connect_qp(struct qp *q, struct qp *peer, const uint8_t *gid)
{
	enum { STATE = 1, ACCESS = 8, PKEY = 16, PORT = 32, AV = 128, MTU = 256, TIMEOUT = 512, RETRY = 1024,
		RNR_RETRY = 2048, RQ_PSN = 4096, RD_ATOMIC = 8192, RNR_TIMER = 1 << 15, SQ_PSN = 1 << 16,
		DEST_RD_ATOMIC = 1 << 17, DEST_QPN = 1 << 20 };
	struct goroce_qp_attr a = {.qp = q->handle, .port = 1, .access = 1 << 1, .path_mtu = 1024, .dest_qpn = peer->qpn,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
		.ah = {.port = 1, .hop_limit = 64}};
	memcpy(a.ah.dgid, gid, 16);
	static const struct { uint32_t state, mask; } steps[] = {
		{1, STATE | PKEY | PORT | ACCESS},
		{2, STATE | AV | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER},
		{3, STATE | SQ_PSN | TIMEOUT | RETRY | RNR_RETRY | RD_ATOMIC},
	};
	for (int i = 0; i < 3; i++) {
		a.state = steps[i].state;
		a.mask = steps[i].mask;
		request(21, &a, sizeof(a), -1, NULL, 0, NULL);
	}
}

/* wait_completion arms the ring, waits for the event, and takes the completion. */
static struct goroce_cq_slot wait_completion(char *ring, int channel)
{
	static uint32_t taken;
	for (;;) {
		atomic_store(word(ring, wake), 2);
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(word(ring, producer), memory_order_acquire) != taken) {
			struct goroce_cq_slot wc = *(struct goroce_cq_slot *)slot(ring, taken);
			atomic_store_explicit(word(ring, consumer), ++taken, memory_order_release);
			if (wc.status) {
				fprintf(stderr, "completion %lu with status %u\n", (unsigned long)wc.id, wc.status);
				exit(1);
			}
			return wc;
		}
		struct goroce_completion event;
		if (read(channel, &event, sizeof(event)) < 0) {
			fcntl(channel, F_SETFL, 0); /* the daemon sends it non-blocking */
			continue;
		}
	}
}

static void post_send(struct qp *q, uint8_t opcode, struct goroce_sge sge, uint64_t to, uint32_t rkey)
{
	struct goroce_send_slot *s = slot(q->send, q->sent);
	*s = (struct goroce_send_slot){.id = 7, .opcode = opcode, .flags = 2 /* IBV_SEND_SIGNALED */, .num_sge = 1,
		.remote_addr = to, .rkey = rkey};
	memcpy(s + 1, &sge, sizeof(sge));
	publish(q, q->send, ++q->sent);
}

/* The event channel of the connection manager, and its socket. */
static struct goroce_object cm_channel;
static int cm_socket;

static void open_cm(void)
{
	request(26, NULL, 0, -1, &cm_channel, sizeof(cm_channel), &cm_socket);
	fcntl(cm_socket, F_SETFL, 0); /* the daemon sends it non-blocking */
}

static uint32_t create_id(void)
{
	struct goroce_create_cm_id r = {.channel = cm_channel.handle, .space = 0x106 /* RDMA_PS_TCP */};
	struct goroce_object id;
	request(27, &r, sizeof(r), -1, &id, sizeof(id), NULL);
	return id.handle;
}

/* next_event waits for the next event, which must be of that type. */
static struct goroce_cm_event next_event(uint32_t type)
{
	struct goroce_cm_event event;
	do {
		struct pollfd waits = {.fd = cm_socket, .events = POLLIN};
		struct goroce_cm_signal signal;
		if (poll(&waits, 1, -1) != 1)
			die("event channel");
		request(28, &cm_channel, sizeof(cm_channel), -1, &event, sizeof(event), NULL);
		if (event.signals && read(cm_socket, &signal, sizeof(signal)) != sizeof(signal))
			die("event channel");
	} while (event.type == GOROCE_CM_NO_EVENT);
	if (event.type != type) {
		fprintf(stderr, "event %u with status %d, not %u\n", event.type, event.status, type);
		exit(1);
	}
	return event;
}

/* move takes a QP to a state with the attributes of its CM ID. */
static void move(struct qp *q, uint32_t id, uint32_t state)
{
	struct goroce_cm_value ask = {.id = id, .which = state};
	struct goroce_qp_attr a;
	request(42, &ask, sizeof(ask), -1, &a, sizeof(a), NULL);
	a.qp = q->handle;
	request(21, &a, sizeof(a), -1, NULL, 0, NULL);
}

/* connect_by_address connects a to b, through the port that b listens on. It returns the
 * ID of a. */
static uint32_t connect_by_address(struct qp *a, struct qp *b, const uint8_t *gid)
{
	struct goroce_cm_bind bind = {.id = create_id(), .addr = {.port = 7471, .family = 4}};
	struct goroce_cm_listen listen = {bind.id, 1};
	memcpy(bind.addr.ip, gid, 16); /* the GID of an IPv4 address has that in its last 4 bytes, too */
	request(29, &bind, sizeof(bind), -1, NULL, 0, NULL);
	request(30, &listen, sizeof(listen), -1, NULL, 0, NULL);

	struct goroce_cm_resolve to = {.id = create_id(), .timeout_ns = 1000000000, .remote = bind.addr};
	request(31, &to, sizeof(to), -1, NULL, 0, NULL);
	next_event(0 /* RDMA_CM_EVENT_ADDR_RESOLVED */);
	request(32, &to, sizeof(to), -1, NULL, 0, NULL);
	next_event(2 /* RDMA_CM_EVENT_ROUTE_RESOLVED */);
	move(a, to.id, 1 /* IBV_QPS_INIT */);
	struct goroce_cm_connect c = {.id = to.id, .param = {.qpn = a->qpn, .retry_count = 7, .rnr_retry = 7,
		.private_len = 5}};
	memcpy(c.private_data, "knock", 5);
	request(33, &c, sizeof(c), -1, NULL, 0, NULL);

	struct goroce_cm_event asked = next_event(4 /* RDMA_CM_EVENT_CONNECT_REQUEST */);
	printf("request on ID %s: %.5s\n", asked.listener == bind.id ? "of the listener" : "of nobody", asked.private_data);
	for (uint32_t state = 1; state <= 3; state++)
		move(b, asked.id, state);
	struct goroce_cm_connect accept = {.id = asked.id, .param = {.qpn = b->qpn, .rnr_retry = 7}};
	request(34, &accept, sizeof(accept), -1, NULL, 0, NULL);

	next_event(5 /* RDMA_CM_EVENT_CONNECT_RESPONSE */);
	move(a, to.id, 2);
	move(a, to.id, 3);
	request(35, &(struct goroce_object){to.id}, sizeof(struct goroce_object), -1, NULL, 0, NULL);
	next_event(9 /* RDMA_CM_EVENT_ESTABLISHED */);
	return to.id;
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	if (argc != 2)
		return 2;
	strncpy(at.sun_path, argv[1], sizeof(at.sun_path) - 1);
	control = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (connect(control, (struct sockaddr *)&at, sizeof(at)) < 0)
		die(argv[1]);

	static struct goroce_hello_reply devices;
	static struct goroce_open_reply device;
	struct goroce_hello hello = {GOROCE_MAGIC, 4, 4};
	request(1, &hello, sizeof(hello), -1, &devices, sizeof(devices), NULL);
	struct goroce_open open_first = {{0}};
	int fds[16], fd;
	request(2, &open_first, sizeof(open_first), -1, &device, sizeof(device), fds);
	uint32_t tops = (device.doorbells + 4095) / 4096;
	doorbells_size = 128 + (tops + 7) / 8 * 64 + tops * 512;
	doorbells = share(doorbells_size * device.shards, &fd);
	request(50, NULL, 0, fd, NULL, 0, eventfds);
	close(fd);
	printf("device %s, of %u\n", device.device.name, devices.devices);

	struct goroce_port port = {1, 0};
	struct goroce_gid_entry gid;
	request(4, &port, sizeof(port), -1, &gid, sizeof(gid), NULL);

	struct goroce_object pd, channel;
	int events;
	request(7, NULL, 0, -1, &pd, sizeof(pd), NULL);
	request(9, NULL, 0, -1, &channel, sizeof(channel), &events);
	struct goroce_create_cq create_cq = {16, channel.handle, 0};
	struct goroce_ring cq;
	char *cq_ring = share(cq_size(16), &fd);
	request(10, &create_cq, sizeof(create_cq), fd, &cq, sizeof(cq), NULL);
	close(fd);

	struct goroce_object memory;
	char *bytes = share(8192, &fd);
	request(51, NULL, 0, fd, &memory, sizeof(memory), NULL);
	close(fd);
	struct goroce_reg_mr reg = {.pd = pd.handle, .access = 1 | 1 << 1, .kind = GOROCE_MEMFD, .file = memory.handle,
		.length = 8192, .iova = 0x10000};
	struct goroce_reg_reply mr;
	request(12, &reg, sizeof(reg), -1, &mr, sizeof(mr), NULL);

	struct qp a = create_qp(pd.handle, cq.handle), b = create_qp(pd.handle, cq.handle);
	connect_qp(&a, &b, gid.gid);
	connect_qp(&b, &a, gid.gid);

	struct goroce_recv_slot *r = slot(b.recv, b.posted);
	struct goroce_sge to = {0x10000 + 4096, 100, mr.key}, from = {0x10000, 13, mr.key};
	*r = (struct goroce_recv_slot){.id = 9, .num_sge = 1};
	memcpy(r + 1, &to, sizeof(to));
	publish(&b, b.recv, ++b.posted);
	strcpy(bytes, "hello from C");
	post_send(&a, 2 /* IBV_WR_SEND */, from, 0, 0);
	for (int i = 0; i < 2; i++)
		wait_completion(cq_ring, events);
	printf("received: %s\n", bytes + 4096);
	memset(bytes + 4096, 0, 4096);
	post_send(&a, 0 /* IBV_WR_RDMA_WRITE */, from, 0x10000 + 5000, mr.key);
	wait_completion(cq_ring, events);
	printf("written: %s\n", bytes + 5000);
	struct goroce_close_reply closed;
	request(25, &(struct goroce_close){a.handle, GOROCE_KIND_QP}, sizeof(struct goroce_close), -1, &closed, sizeof(closed), NULL);

	struct qp c = create_qp(pd.handle, cq.handle), d = create_qp(pd.handle, cq.handle);
	open_cm();
	uint32_t id = connect_by_address(&c, &d, gid.gid);
	r = slot(d.recv, d.posted);
	*r = (struct goroce_recv_slot){.id = 9, .num_sge = 1};
	memcpy(r + 1, &to, sizeof(to));
	publish(&d, d.recv, ++d.posted);
	post_send(&c, 2 /* IBV_WR_SEND */, from, 0, 0);
	for (int i = 0; i < 2; i++)
		wait_completion(cq_ring, events);
	printf("connected: %s\n", bytes + 4096);
	request(38, &(struct goroce_object){id}, sizeof(struct goroce_object), -1, NULL, 0, NULL);
	for (int i = 0; i < 2; i++)
		next_event(10 /* RDMA_CM_EVENT_DISCONNECTED */);
	printf("disconnected\n");
	return 0;
}
