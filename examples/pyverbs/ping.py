#!/usr/bin/python3
"""ping: verbs in Python, with pyverbs of rdma-core.

Two processes of one machine, which share nothing but a pipe, ping each other. The parent WRITEs a text into the
memory of its child, and then SENDs a message that says so; the child answers with a SEND. Through the pipe they
tell each other the numbers of their queue pairs, and the child where its memory is, and its key.

    goroced run -- python3 ping.py      # package python3-pyverbs; no RDMA NIC, no root: over the daemon of goroce

With an RDMA NIC `python3 ping.py` does the same, on the first port of the first device and the first GID.
"""
import multiprocessing
import sys

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

TEXT = b'hello from Python'
SIZE = 64  # of the memory: the first half is for what goes out, the second one for messages that come
HALF = SIZE // 2


class Side:
    """One end of the connection, with a device, memory and a queue pair of its own."""

    def __init__(self):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.mr = MR(self.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        self.cq = CQ(self.context, 8)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                                         cap=QPCap(max_send_wr=4, max_recv_wr=4)))

    def connect(self, peer):
        """Take the queue pair to RTS (ready to send), with the peer of that number on the same port."""
        route = GlobalRoute(dgid=self.context.query_gid(1, 0), sgid_index=0, hop_limit=64)
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = peer
        attr.path_mtu = e.IBV_MTU_1024
        attr.min_rnr_timer = 12  # 0.64 ms
        attr.timeout = 14        # 67 ms
        attr.retry_cnt = attr.rnr_retry = 7
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)  # by way of INIT and RTR

    def receive(self):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf + HALF, HALF, self.mr.lkey)]))

    def post(self, opcode, at, data, remote=None):
        self.mr.write(data, len(data), at)
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(self.mr.buf + at, len(data), self.mr.lkey)])
        if remote:
            wr.set_wr_rdma(remote['key'], remote['address'])
        self.qp.post_send(wr)
        self.wait(1)

    def wait(self, count):
        """Poll until so many requests are complete."""
        while count:
            n, completions = self.cq.poll(count)
            for wc in completions:
                if wc.status != e.IBV_WC_SUCCESS:
                    sys.exit(f'ping: completion with status {wc.status}')
            count -= n


def child(pipe):
    side = Side()
    pipe.send({'qp': side.qp.qp_num, 'address': side.mr.buf, 'key': side.mr.rkey})
    side.connect(pipe.recv()['qp'])
    side.receive()
    pipe.send('ready')
    side.wait(1)
    message, text = side.mr.read(4, HALF), side.mr.read(len(TEXT), 0)
    print(f'{message.decode()}: {text.decode()}', flush=True)
    side.post(e.IBV_WR_SEND, 0, b'pong')


def main():
    pipe, end = multiprocessing.Pipe()
    process = multiprocessing.get_context('spawn').Process(target=child, args=(end,))
    process.start()
    end.close()  # so that recv() fails if the child ends
    side = Side()
    pipe.send({'qp': side.qp.qp_num})
    remote = pipe.recv()
    side.connect(remote['qp'])
    pipe.recv()  # the child is ready
    side.receive()
    side.post(e.IBV_WR_RDMA_WRITE, 0, TEXT, remote)
    side.post(e.IBV_WR_SEND, 0, b'ping')
    side.wait(1)
    print(side.mr.read(4, HALF).decode(), flush=True)
    process.join()
    sys.exit(process.exitcode)


if __name__ == '__main__':
    main()
