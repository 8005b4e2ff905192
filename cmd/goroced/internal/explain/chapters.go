package explain

// chapter is a part of the course. The numbers of chapters begin at 1.
type chapter struct {
	title   string
	before  []int // chapters to read first
	text    []string
	words   []string // terms of the glossary that it is about
	lessons []string
	ask     question
	breakIt change
}

// question has an answer of a word or a number.
type question struct {
	text    string
	answers []string // each is right
	because string
}

// change is an experiment: a text in the script of a lesson to be replaced, as often as it stands there. The result
// is a script with a claim that is wrong, which shows what happens instead.
type change struct {
	lesson   string
	old, new string
	about    string
	shows    string // a part of what is printed
}

var chapters = []chapter{
	{
		title: "From sockets to queue pairs",
		text: []string{
			"With TCP a program calls send, and the kernel copies bytes into a stream. With RDMA a program has a " +
				"queue pair (QP): a send queue and a receive queue. It posts work requests to them and goes on; the " +
				"device does the work, from and to the program's own memory. When a request is done, a completion " +
				"(CQE) stands in a completion queue (CQ), which the program polls, or waits for on a completion " +
				"channel.",
			"There are messages, not a stream: a SEND of 10 bytes fills one receive that the peer has posted. " +
				"Nobody buffers: without a receive there is no place for it. Memory belongs to the device from the " +
				"post to the completion.",
		},
		words:   []string{"QP", "WR", "WQ", "WQE", "CQ", "CQE", "completion channel", "arming"},
		lessons: []string{"send-only", "send-segments", "zero-length"},
		ask: question{"A program posts one receive of 4096 bytes. Two SENDs of 10 bytes arrive. How many of them " +
			"fit into that " +
			"receive?", []string{"1", "one"}, "a receive is for one message, however short; the second SEND " +
			"needs a receive of its own."},
		breakIt: change{"send-only", "len=1025", "len=1024", "What becomes of the byte that was alone in its packet?",
			"First"},
	},
	{
		title:  "Memory and keys",
		before: []int{1},
		text: []string{
			"A device may touch only memory that was registered: a memory region (MR) in a protection domain (PD). " +
				"Registering gives two numbers. The program itself names pieces of the region by the L_Key (an SGE " +
				"is address, length and L_Key). A peer names it by the R_Key, if the program has told it: then it " +
				"can WRITE to or READ from that memory, and no program runs there. The peer's program sees no " +
				"completion of a plain WRITE.",
		},
		words:   []string{"PD", "MR", "L_Key", "SGE"},
		lessons: []string{"write-segments", "scatter-gather", "local-key"},
		ask: question{"Which key does a program give to its peer, so that the peer may write into its memory: L_Key " +
			"or R_Key?", []string{"R_Key", "rkey"}, "the R_Key is for the peer (remote), the L_Key for one's own " +
			"requests (local)."},
		breakIt: change{"write-segments", "R len=4096", "R len=4096 access=read", "The region may be read, but not " +
			"written: what arrives in memory?", "memory at R+8"},
	},
	{
		title:  "Packets, GIDs and the path MTU",
		before: []int{1},
		text: []string{
			"A RoCEv2 packet is an InfiniBand packet in UDP, to port 4791. The address of a port is its GID: 16 " +
				"bytes, which hold the IP address. The base transport header (BTH) has the number of the " +
				"destination QP and the packet sequence number (PSN), which counts packets and not bytes. A message " +
				"is cut at the path MTU: 256, 512, 1024, 2048 or 4096 bytes of data in a packet, so that headers " +
				"and data fit the MTU of the network: 1024 for the usual 1500 bytes, 4096 for jumbo frames. Both " +
				"ends must have the same one.",
		},
		words:   []string{"GID", "GRH", "BTH", "RETH", "PSN", "ICRC", "P_Key"},
		lessons: []string{"packet-format", "psn-wrap", "padding", "immediate"},
		ask: question{"The path MTU is 1024. How many packets has a SEND of 2500 bytes?", []string{"3", "three"},
			"1024, 1024 and 452 bytes: First, Middle and Last."},
		breakIt: change{"padding", "pad=3", "pad=0", "Do five bytes travel as five bytes?", "not 0 but 3"},
	},
	{
		title:  "Connecting: from RESET to RTS",
		before: []int{1, 3},
		text: []string{
			"A QP begins in RESET. Its owner takes it to INIT (it takes receives), to RTR, \"ready to receive\" (it " +
				"knows its peer, and answers), and to RTS, \"ready to send\". For that each end needs the other's " +
				"QP number, first PSN and GID. The connection manager (CM) brings them: REQ, REP and RTU, by " +
				"datagrams to QP 1; programs use it through librdmacm, by address and port. Programs that have TCP " +
				"anyway, such as ibv_rc_pingpong, send them there.",
		},
		words:   []string{"RESET", "CM", "REQ", "MAD", "GSI", "timewait"},
		lessons: []string{"cm-handshake", "init", "comm-established", "modify-attributes"},
		ask: question{"In which state is a QP first allowed to send requests?", []string{"RTS", "ready to send"},
			"RTR receives and answers; RTS also sends."},
		breakIt: change{"comm-established", "modify RTS defaults", "modify INIT", "There is no way back from RTR to " +
			"INIT.", "modify INIT"},
	},
	{
		title:  "Acknowledgements",
		before: []int{3},
		text: []string{
			"On a reliable connection (RC) the responder answers what asks for it (AckReq). An ACK is for a PSN and " +
				"for everything before it, so one may answer many requests. Its AETH has a syndrome (ACK, NAK, RNR " +
				"NAK) and the MSN, the number of messages that are complete. A request that was executed before is " +
				"acknowledged again, but not executed again.",
		},
		words:   []string{"requester", "completer", "AETH", "syndrome", "MSN", "SSN", "ACK coalescing"},
		lessons: []string{"ack-request", "ack-cumulative", "msn", "duplicate-request", "ack-coalesced"},
		ask: question{"Requests with the PSNs 100, 101 and 102 are sent. One ACK comes, with PSN 102. How many of " +
			"them does it acknowledge?", []string{"3", "three", "all"}, "an ACK is cumulative."},
		breakIt: change{"msn", "msn=0", "msn=1", "Is a message counted when its first packet has arrived?", "msn=0"},
	},
	{
		title:  "Loss",
		before: []int{5},
		text: []string{
			"PSNs show a gap: the responder asks by a NAK for everything from there on, and the requester goes back " +
				"(go-back-N). Nothing shows the loss of the last packet: then the local ACK timeout has to run out, " +
				"4.096 us times 2 to the power of a code, which programs choose. After so many tries as RetryCnt " +
				"says the QP fails.",
			"goroce does more, which is marked so: it keeps what arrives behind a gap, asks a peer of its own kind " +
				"for what is missing only (SACK; a hello finds out what the peer is), and finds the loss of a last " +
				"packet by a probe.",
		},
		words: []string{"go-back-N", "tail probe"},
		lessons: []string{"lost-packet", "nak-once", "lost-ack", "lost-last", "timeout", "retry-exceeded", "kept",
			"sack", "hello-refused", "tail-probe", "spurious"},
		ask: question{"The code of the local ACK timeout is 14. How many milliseconds are that, rounded?",
			[]string{"67", "67.1", "67.1 ms", "67 ms"}, "4.096 us * 2^14 is 67.1 ms."},
		breakIt: change{"lost-packet", ">x SEND Middle", "> SEND Middle", "What if the packet is not lost after all?",
			"psn=101"},
	},
	{
		title:  "READ, atomics and FLUSH",
		before: []int{2, 5},
		text: []string{
			"A READ is one packet; its responses carry the data, and take the PSNs from that of the request on. " +
				"They are its acknowledgement. Atomics (compare and swap, fetch and add) change 8 bytes in one " +
				"piece, and the answer has what was there before; when it is lost, the responder answers from what " +
				"it remembers. FLUSH waits until written data is in memory for good. So that the responder need not " +
				"remember everything, the number of READs and atomics under way is agreed on.",
		},
		words:   []string{"fence", "implied NAK", "FLUSH"},
		lessons: []string{"read-segments", "read-psns", "implied-nak", "atomic-cas", "atomic-replay", "fence", "flush"},
		ask: question{"The path MTU is 1024. A READ of 4096 bytes has PSN 100. Which PSN has the next request?",
			[]string{"104"}, "the four responses have the PSNs 100 to 103."},
		breakIt: change{"read-psns", "SEND Only psn=103", "SEND Only psn=101", "Does the next request follow the " +
			"READ at once?", "psn=103"},
	},
	{
		title:  "Flow control: when the receiver is not ready",
		before: []int{5},
		text: []string{
			"A SEND needs a receive. Without one the responder answers RNR NAK: try again after a delay, RNRRetry " +
				"times. Better is not to get there: each ACK may carry credits, the number of receives that are " +
				"posted, and programs count for themselves. A shared receive queue (SRQ) serves many QPs, and tells " +
				"by an event when it runs low; XRC lets a request name the SRQ. WRITE and READ need no receive, so " +
				"none of this slows them.",
		},
		words:   []string{"RNR NAK", "credits", "SRQ", "XRC"},
		lessons: []string{"rnr-nak", "rnr-exceeded", "rnr-for-ever", "credits", "srq-shared", "srq-limit", "xrc-srq"},
		ask: question{"Which value of RNRRetry means to try for ever?", []string{"7", "seven"}, "it has three bits, " +
			"and 7 never runs out."},
		breakIt: change{"rnr-nak", "advance 639us", "advance 641us", "The test that nothing is sent before the " +
			"delay is over now looks too late.", "psn=100"},
	},
	{
		title:  "Congestion: ECN, CNP and PFC",
		before: []int{6, 8},
		text: []string{
			"Credits say what the receiver takes, not what the network does. Three things guard a network of " +
				"RoCEv2. Priority flow control (PFC) lets a switch stop its neighbour before a queue overflows, so " +
				"nothing is lost, but stopped links spread backwards and can stop everybody. Explicit congestion " +
				"notification (ECN): a switch with a long queue marks packets; who receives a marked one sends a " +
				"congestion notification packet (CNP) to the sender, which slows down (DCQCN on NICs). And end to " +
				"end, without the network's help, a sender bounds what it has under way.",
			"goroce relies on the last, as TCP does: a congestion window for each destination, which grows with " +
				"ACKs and shrinks at a loss or a CNP. It works without PFC. Where switches mark, it can do as " +
				"NICs do instead (DCQCN).",
		},
		words:   []string{"congestion window", "pacing"},
		lessons: []string{"in-flight", "cnp", "dcqcn", "rate-limit", "rate-timeout", "read-pieces"},
		ask: question{"A switch marks a packet on its way from A to B. Who sends the CNP, A or B?", []string{"B"},
			"the switch marks, the receiver B notifies, the sender A slows down."},
		breakIt: change{"in-flight", "window 90  --", "window 128  --",
			"Does the window stay as it was after a loss?", "90"},
	},
	{
		title:  "Errors, and how a connection ends",
		before: []int{4, 6},
		text: []string{
			"There is no half of a connection: a request that fails for good takes its QP to ERR. Everything that " +
				"is still posted completes with \"flushed\", so a program gets all its buffers back; the first " +
				"completion that is not \"success\" has the cause. The peer learns little, by a NAK, or nothing. " +
				"SQD stops in an orderly way, RESET forgets everything. `goroced why` tells the cause of what has " +
				"failed here.",
		},
		words:   []string{"flush, of a queue"},
		lessons: []string{"nak-status", "recv-too-short", "flush-order", "cq-overrun", "sqd", "reset-forgets"},
		ask: question{"Three requests are posted, the first fails. With which status do the other two complete?",
			[]string{"flushed", "WR_FLUSH_ERR", "flush", "IBV_WC_WR_FLUSH_ERR", "work request flushed error"},
			"they are flushed: look at the first failure for the cause."},
		breakIt: change{"flush-order", "wc send 2 WR_FLUSH_ERR", "wc send 2 SUCCESS", "Does the request that was on " +
			"its way succeed?", "WR_FLUSH_ERR"},
	},
	{
		title:  "Security: who may touch what",
		before: []int{2, 10},
		text: []string{
			"Nothing is encrypted, and an R_Key is a number of 32 bits in clear text: it keeps errors and other " +
				"programs out, not somebody who reads the network. What holds: a key opens one region, with its " +
				"bounds and rights, in one protection domain, for QPs that allow such requests. Give away as little " +
				"as possible: a memory window opens a piece of a region, for one QP, and is closed by one request " +
				"(or by the peer's SEND with invalidate). For UD the Q_Key keeps strangers apart; an address handle " +
				"says where a datagram goes.",
		},
		words: []string{"memory window", "Q_Key", "address handle"},
		lessons: []string{"remote-key", "access-flag", "mw-bind", "mw-other-qp", "mw-invalidate", "send-invalidate",
			"ud-qkey", "ud-address"},
		ask: question{"A peer WRITEs with the right R_Key, one byte beyond the region. Is a part of it written: yes " +
			"or " +
			"no?", []string{"no"}, "the whole length is checked first: NAK, remote access error, and the connection " +
			"ends."},
		breakIt: change{"remote-key", "len=16 to=R+49", "len=15 to=R+49", "One byte less, and it fits.",
			"WRITE Only"},
	},
	{
		title:  "Performance: doorbells, inline and batches",
		before: []int{1, 9},
		text: []string{
			"Each post rings a doorbell, which costs: post several requests as one list. Each completion costs: ask " +
				"for one in 16 or 32 (signaled), which tells of all before it. Small messages go inline: the device " +
				"need not fetch them. Poll when you want latency, arm a channel when you want the processor back; " +
				"solicited events wake a sleeper for what matters. Keep enough requests under way: bandwidth times " +
				"round trip. In software most of the cost is for each packet: a large path MTU, and long runs of " +
				"packets that the kernel or the NIC cuts, help most.",
		},
		words:   []string{"doorbell", "signaled", "solicited event", "header prediction", "segmentation offload"},
		lessons: []string{"inline", "unsignaled", "solicited", "max-rd-atomic", "ack-rides-behind", "write-train"},
		ask: question{"A program posts 32 SENDs, and only the last is signaled. How many completions come, if all " +
			"succeed?", []string{"1", "one"}, "requests complete in order, so that of the last tells of all."},
		breakIt: change{"inline", "len=40 inline", "len=40", "Without inline the device takes the data later, when " +
			"the program has scribbled over it.", "SEND Only"},
	},
}
