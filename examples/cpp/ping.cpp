// ping: verbs in C++, with the headers of any libibverbs.
//
// Two RC queue pairs of one process are connected with each other. The first one WRITEs a text into the memory of
// the second, and then SENDs a message that says so; the second one answers with a SEND. Each completion is checked.
// Objects are destroyed in the reverse order, by std::unique_ptr.
//
//	c++ -std=c++17 -o ping ping.cpp -libverbs       # package libibverbs-dev
//	goroced run -- ./ping                           # no RDMA NIC, no root: over the daemon of goroce
//
// With an RDMA NIC `./ping` does the same; its port is then the first one, and its GID the first of the table.
#include <infiniband/verbs.h>

#include <cerrno>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

// made is an object of libibverbs with the function that destroys it; nullptr is an error, told by errno.
template <typename T> std::unique_ptr<T, int (*)(T *)> made(T *object, int (*destroy)(T *), const char *what)
{
	if (!object)
		throw std::system_error(errno, std::generic_category(), what);
	return {object, destroy};
}

void check(int err, const char *what)
{
	if (err)
		throw std::system_error(err, std::generic_category(), what);
}

ibv_context *open_first()
{
	int n = 0;
	ibv_device **list = ibv_get_device_list(&n);
	if (!list)
		return nullptr;
	errno = ENODEV; // unless there is a device
	ibv_context *context = n > 0 ? ibv_open_device(list[0]) : nullptr;
	int err = errno; // which freeing the list may change
	ibv_free_device_list(list);
	errno = err;
	return context;
}

// connect takes a queue pair to RTS (ready to send), with a peer on the same port.
void connect(ibv_qp *qp, const ibv_qp *peer)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	check(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");

	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = peer->qp_num;
	a.min_rnr_timer = 12; // 0.64 ms
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.hop_limit = 64;
	check(ibv_query_gid(qp->context, 1, 0, &a.ah_attr.grh.dgid), "query GID 0");
	check(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");

	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14; // 67 ms
	a.retry_cnt = a.rnr_retry = 7;
	check(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

// wait polls until a request is complete.
void wait(ibv_cq *cq, ibv_wc_opcode opcode)
{
	ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0)
		throw std::runtime_error("the CQ cannot be polled");
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode)
		throw std::runtime_error(std::string("completion: ") + ibv_wc_status_str(wc.status));
}

void post(ibv_qp *qp, ibv_wr_opcode opcode, ibv_sge sge, const void *remote = nullptr, uint32_t rkey = 0)
{
	ibv_send_wr wr{}, *bad;
	wr.opcode = opcode;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(remote);
	wr.wr.rdma.rkey = rkey;
	check(ibv_post_send(qp, &wr, &bad), "post send");
}

void receive(ibv_qp *qp, ibv_sge sge)
{
	ibv_recv_wr wr{}, *bad;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	check(ibv_post_recv(qp, &wr, &bad), "post receive");
}

void ping()
{
	struct {
		char text[32], message[8];
	} a{"hello from C++", "ping"}, b{"", "pong"};
	auto piece = [](auto &field, const ibv_mr *mr) {
		return ibv_sge{reinterpret_cast<uintptr_t>(&field), sizeof field, mr->lkey};
	};

	auto context = made(open_first(), ibv_close_device, "open the first device");
	auto pd = made(ibv_alloc_pd(context.get()), ibv_dealloc_pd, "allocate a PD");
	auto mr_a = made(ibv_reg_mr(pd.get(), &a, sizeof a, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr, "register memory");
	auto mr_b = made(ibv_reg_mr(pd.get(), &b, sizeof b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
			ibv_dereg_mr, "register memory");
	auto cq_a = made(ibv_create_cq(context.get(), 8, nullptr, nullptr, 0), ibv_destroy_cq, "create a CQ");
	auto cq_b = made(ibv_create_cq(context.get(), 8, nullptr, nullptr, 0), ibv_destroy_cq, "create a CQ");
	auto create = [&](ibv_cq *cq) {
		ibv_qp_init_attr init{};
		init.send_cq = init.recv_cq = cq;
		init.qp_type = IBV_QPT_RC;
		init.cap = {4, 4, 1, 1, 0};
		return made(ibv_create_qp(pd.get(), &init), ibv_destroy_qp, "create a QP");
	};
	auto qp_a = create(cq_a.get()), qp_b = create(cq_b.get());
	connect(qp_a.get(), qp_b.get());
	connect(qp_b.get(), qp_a.get());

	char got[2][8]{}; // what each of them receives
	auto mr_got = made(ibv_reg_mr(pd.get(), got, sizeof got, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr,
			"register memory");
	receive(qp_a.get(), piece(got[0], mr_got.get()));
	receive(qp_b.get(), piece(got[1], mr_got.get()));

	post(qp_a.get(), IBV_WR_RDMA_WRITE, piece(a.text, mr_a.get()), b.text, mr_b->rkey);
	wait(cq_a.get(), IBV_WC_RDMA_WRITE);
	post(qp_a.get(), IBV_WR_SEND, piece(a.message, mr_a.get()));
	wait(cq_a.get(), IBV_WC_SEND);
	wait(cq_b.get(), IBV_WC_RECV);
	std::cout << got[1] << ": " << b.text << std::endl;

	post(qp_b.get(), IBV_WR_SEND, piece(b.message, mr_b.get()));
	wait(cq_b.get(), IBV_WC_SEND);
	wait(cq_a.get(), IBV_WC_RECV);
	std::cout << got[0] << std::endl;
}

} // namespace

int main()
{
	try {
		ping();
	} catch (const std::exception &e) {
		std::cerr << "ping: " << e.what() << std::endl;
		return 1;
	}
}
