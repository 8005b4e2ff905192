package engine

// Bounds of one turn of a shard. Whatever peers and applications do, a turn does no more than this,
// and then looks at frames, doorbells and timers again: what is left over waits for the next turn, in
// its order. So nobody delays the others for long by a packet or a request that makes much work.
const (
	// TurnAnswers is how many results of workers a turn takes.
	TurnAnswers = 256

	// TurnFrames is how many received frames a turn processes, and as many that came by the links of
	// other shards. It ends behind that frame's run: a run of ordinary frames is processed as a whole.
	// A multicast datagram counts once for each member of its group. TurnFramesMost is where a turn
	// ends in the middle of a run. The last datagram may exceed it.
	TurnFrames     = 128
	TurnFramesMost = 2 * TurnFrames

	// TurnDoorbells is how many QPs' doorbells a turn takes. The requests behind them come out of their
	// rings as the QPs send them. In ERR a doorbell flushes qp.FlushMost requests.
	TurnDoorbells = 64

	// TurnTimers is how many QPs' timers a turn runs, the earliest deadlines first.
	TurnTimers = 64

	// TurnDatagrams is how many datagrams of QP 1 a turn sends.
	TurnDatagrams = 64

	// TurnQPs is how many QPs may send in a turn, txPackets each at most, and TurnBytes how many bytes
	// of frames they send: the QP that exceeds it is the last one. A request that is taken out of its
	// ring counts for requestBytes besides, as it is work even if it needs no packet. A QP other than the
	// one before counts for twice its bytes more, switchBytes at most: the state of so many has to be in
	// the processor's cache until their ACKs come.
	TurnQPs      = 64
	TurnBytes    = 768 << 10
	requestBytes = 384
	switchBytes  = 32 << 10

	// AppTurn is how many packets one application may send before the next one's turn, and how many
	// go to one of its peers before the next peer's turn. A QP's turn that begins within this number
	// may exceed it.
	AppTurn = txPackets

	// appRings is how many doorbells of one application are taken before those of the next one.
	appRings = 8
)
