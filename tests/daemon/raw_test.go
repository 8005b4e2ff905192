package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// raw is a connection to a daemon without package client, for requests that need not be valid.
type raw struct {
	conn      *abi.Conn
	seq       uint32
	maps      [][]byte // memory that it shares with the daemon
	doorbells []*ring.Doorbells
	wakes     []int
	fds       []int // other received descriptors
}

func dialRaw(socket string) (*raw, error) {
	c, err := net.Dial("unixpacket", socket)
	if err != nil {
		return nil, err
	}
	return &raw{conn: abi.NewConn(c.(*net.UnixConn))}, nil
}

// close ends the connection, and releases the memory and descriptors that were received.
func (r *raw) close() {
	_ = r.conn.Close()
	for _, m := range r.maps {
		_ = unix.Munmap(m)
	}
	abi.CloseAll(r.fds)
	abi.CloseAll(r.wakes)
	r.maps, r.fds, r.wakes = nil, nil, nil // close may be called again
}

// call sends a request and returns the reply. An error means that the daemon has closed the
// connection.
func (r *raw) call(op abi.Op, body []byte, give ...int) (abi.Status, []byte, []int, error) {
	r.seq++
	if err := r.conn.Send(abi.Header{Op: op, Seq: r.seq}, body, give...); err != nil {
		return 0, nil, nil, err
	}
	must(r.conn.SetReadDeadline(time.Now().Add(patience)))
	h, answer, fds, err := r.conn.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		panic("the daemon does not answer")
	}
	if err == nil && (h.Op != op || h.Seq != r.seq) {
		panic(fmt.Sprintf("%v %d was answered as %v %d", op, r.seq, h.Op, h.Seq))
	}
	return h.Status, answer, fds, err
}

// ask is call for a request that must succeed.
func ask[Reply, Request any](r *raw, op abi.Op, q Request, give ...int) (Reply, []int) {
	status, body, fds, err := r.call(op, abi.Put(nil, &q), give...)
	if err == nil && status != abi.OK {
		err = abi.GetError(body, status)
	}
	must(err)
	reply, err := abi.Get[Reply](body)
	must(err)
	return reply, fds
}

// share maps size bytes of a new memfd, which the caller sends and closes.
func (r *raw) share(size int) (buf []byte, fd int) {
	fd = newMemfd(0, int64(size), unix.F_SEAL_SHRINK)
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	r.maps = append(r.maps, buf)
	return buf, fd
}

// askRings is ask for a request with memory for rings.
func askRings[Request any](r *raw, op abi.Op, q Request, size int) (abi.Ring, []byte) {
	buf, fd := r.share(size)
	defer unix.Close(fd)
	reply, _ := ask[abi.Ring](r, op, q, fd)
	return reply, buf
}

// open sends hello, opens a device and shares doorbells.
func (r *raw) open() {
	ask[abi.HelloReply](r, abi.OpHello, abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version})
	reply, fds := ask[abi.OpenReply](r, abi.OpOpen, abi.Open{})
	size := ring.DoorbellsSize(int(reply.Doorbells))
	buf, fd := r.share(size * int(reply.Shards))
	defer unix.Close(fd)
	_, r.wakes = ask[struct{}](r, abi.OpShareDoorbells, struct{}{}, fd)
	for i := range int(reply.Shards) {
		b, err := ring.OpenDoorbells(buf[i*size:][:size])
		must(err)
		r.doorbells = append(r.doorbells, b)
	}
	r.fds = append(r.fds, fds[0])
}

// wake wakes the daemon's first shard.
func (r *raw) wake() error {
	_, err := unix.Write(r.wakes[0], []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// queues are objects of every kind, with their rings.
type queues struct {
	*raw
	pd, cq, srq, channel abi.Handle
	qps                  []abi.Ring
	send, recv           [][]byte   // rings, by QP
	ready, shared        []byte     // of the CQ and the SRQ
	file                 abi.Handle // of the memfd of the memory
	key                  abi.Handle
	gid                  ib.GID
}

const (
	hostileMemory = 64 << 10
	hostileBase   = 0x10000 // its address
)

func newQueues(socket string) *queues {
	r, err := dialRaw(socket)
	must(err)
	q := &queues{raw: r}
	q.build()
	return q
}

// build opens the device and makes the objects.
func (q *queues) build() {
	q.open()
	status, body, _, err := q.call(abi.OpGIDs, abi.Put(nil, &abi.Port{Port: 1}))
	must(err)
	if status != abi.OK {
		panic(abi.GetError(body, status))
	}
	copy(q.gid[:], body)
	pd, _ := ask[abi.Object](q.raw, abi.OpAllocPD, struct{}{})
	channel, fds := ask[abi.Object](q.raw, abi.OpCreateChannel, struct{}{})
	q.fds = append(q.fds, fds...)
	cq, ready := askRings(q.raw, abi.OpCreateCQ, abi.CreateCQ{Entries: 256, Channel: channel.Handle}, ring.CQSize(256))
	srq, shared := askRings(q.raw, abi.OpCreateSRQ, abi.CreateSRQ{PD: pd.Handle, Type: uint32(ib.SRQBasic), MaxWR: 32,
		MaxSGE: 2}, ring.RecvSize(32, 2))
	q.ready, q.shared = ready, shared
	q.pd, q.channel, q.cq, q.srq = pd.Handle, channel.Handle, cq.Handle, srq.Handle
	fd := newMemfd(0, hostileMemory, unix.F_SEAL_SHRINK)
	q.file = q.shareMemory(fd)
	must(unix.Close(fd))
	mr, _ := ask[abi.RegReply](q.raw, abi.OpRegMR, q.memory(q.file))
	q.key = mr.Key
	for i, t := range []ib.QPType{ib.RC, ib.RC, ib.RC, ib.UC, ib.UD} {
		c := abi.CreateQP{PD: q.pd, SendCQ: q.cq, RecvCQ: q.cq, Type: uint32(t), MaxSendWR: 32, MaxRecvWR: 32,
			MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
		if i == 2 {
			c.SRQ = q.srq
		}
		q.addQP(c)
	}
	for i := range q.qps {
		q.bringUp(i)
	}
}

// shareMemory shares a memfd for regions.
func (q *queues) shareMemory(fd int) abi.Handle {
	o, _ := ask[abi.Object](q.raw, abi.OpShareMemory, struct{}{}, fd)
	return o.Handle
}

// memory is a request to register shared memory.
func (q *queues) memory(file abi.Handle) abi.RegMR {
	return abi.RegMR{PD: q.pd, Access: uint32(rights), Kind: abi.MemFD, File: file, Length: hostileMemory,
		IOVA: hostileBase}
}

func (q *queues) addQP(c abi.CreateQP) {
	size := ring.SendSize(int(c.MaxSendWR), int(c.MaxSendSGE), int(c.MaxInline)) +
		ring.RecvSize(int(c.MaxRecvWR), int(c.MaxRecvSGE))
	made, buf := askRings(q.raw, abi.OpCreateQP, c, size)
	q.qps = append(q.qps, made)
	q.send = append(q.send, buf[:made.Send])
	q.recv = append(q.recv, buf[made.Send:][:made.Recv])
}

// bringUp takes a QP to RTS from any state. QPs 0 and 1 are connected to each other, the
// others to themselves.
func (q *queues) bringUp(i int) {
	peer := i
	if i < 2 {
		peer = 1 - i
	}
	a := abi.QPAttr{QP: q.qps[i].Handle, Port: 1, Access: uint32(ib.RemoteWrite | ib.RemoteRead), QKey: 7,
		PathMTU: 1024, DestQPN: q.qps[min(peer, len(q.qps)-1)].Num,
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 1, Timeout: 8, RetryCnt: 1, RNRRetry: 1,
		AH: abi.AH{DGID: q.gid, Port: 1}}
	for _, s := range []struct {
		to   ib.QPState
		mask [3]ib.QPAttrMask // RC, UC, UD
	}{
		{ib.StateReset, [3]ib.QPAttrMask{}},
		{ib.StateInit, [3]ib.QPAttrMask{ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess,
			ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey}},
		{ib.StateRTR, [3]ib.QPAttrMask{ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN |
			ib.AttrMaxDestRdAtomic |
			ib.AttrMinRNRTimer,
			ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN, 0}},
		{ib.StateRTS, [3]ib.QPAttrMask{ib.AttrSQPSN | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry |
			ib.AttrMaxRdAtomic, ib.AttrSQPSN, ib.AttrSQPSN}},
	} {
		a.State, a.Mask = uint32(s.to), uint32(s.mask[max(i-2, 0)]|ib.AttrState)
		status, body, _, err := q.call(abi.OpModifyQP, abi.Put(nil, &a))
		must(err)
		switch status {
		case abi.OK:
		case abi.State: // the contents of its rings have already made it fail
			return
		default:
			panic(abi.GetError(body, status))
		}
	}
}

// newMemfd creates a memfd of size bytes.
func newMemfd(flags int, size int64, seals int) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	must(err)
	must(unix.Ftruncate(fd, size))
	if seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		must(err)
	}
	return fd
}
