// Package script runs the protocol scripts in qp/testdata against real QPs, in
// virtual time. A script both documents and tests one rule of the protocol; it fails
// if package qp does anything that the script does not state.
//
// [Load] parses a script, [Script.Run] runs it and shows each step to an observer,
// which may draw it. [Script.Start] runs it one line at a time, for a program that decides
// about each packet whether it is lost. Files: parse.go parses scripts, run.go runs them,
// stepper.go takes the lines one by one, host.go holds
// memory and other objects that QPs share, endpoint.go a QP with its rings, packet.go
// parses and formats packets, data.go makes their payload; steps.go, post.go,
// window.go, claims.go and crossing.go execute the steps.
//
// # Text
//
// The first line is "# " and the title; the second "group: " and the group, which a script of one's own may leave out.
// "rule: Linux" behind it says that the rule is of libibverbs or the kernel, "rule: goroce" that only goroce does so;
// without it the rule is IBTA's. Each line that starts with a blank is a step; a reason may follow after " -- " and
// continue in lines that begin with "--". All other lines are prose, in paragraphs.
//
// # Scenes and sides
//
//	setup [key=value ...]      a QP, "us", whose peer is played by the script
//	connect [key=value ...]    two QPs, "left" and "right", and a wire
//
// Each starts a new scene, at time 0. The keys are those of config.go; with
// connect, left.key and right.key set a key of one side only. The QP under test is
// left, QP 0x11, with first PSN 100; its peer is QP 0x22, with first PSN 500, unless
// psn and peer-psn set others. In scenes with two sides, steps about one of them begin
// with its name.
//
//	service=rc|uc|ud|gsi|xrc|xrc-tgt    xrc is an initiator; with connect the
//	                                    right side is its target
//	shared=N                            receives come from an SRQ with room for N
//	qps=2                               setup makes two QPs of one protection domain
//	                                    and SRQ, "first" and "second" (QP 0x12, its
//	                                    peer 0x23); all steps begin with their names
//
// Steps are inputs, or claims about their outputs. Consecutive inputs happen within
// one turn of the engine. Before the next input after a claim, and at the end, all
// outputs must have been claimed: every packet, every completion, every event, every
// byte of memory that changed.
//
// # Data
//
// A message's bytes are computed from its number (the ID of its work request), those
// of a region from its name. 1[0:1024] are the first 1024 bytes of message 1. An
// address is a region's name and an offset: R+1024; or a bound window's, with the
// window's key. The GRH of a received datagram is GRH[0:40].
//
// # Packets
//
//	> SEND First psn=100 1[0:1024]      from left to right
//	< ACK psn=100 msn=1                 from right to left
//
// With one QP, ">" claims what it sends and "<" is an input. With two, both claim
// and then deliver, unless the arrow says otherwise:
//
//	>x <x    lost            >> <<    delivered twice
//	>~ <~    delayed ...     ~> ~<    ... and arriving now
//
// Names are those of wire.Op, and of NAKs. Fields: psn (first and last, as in
// psn=101..130, for a run of full packets), AckReq, SE, msn, credits, imm, inv (a
// region), to (an address: VA and R_Key), rkey (in place of the region's), len (of the
// RETH), compare, swap, add, was, delay (of an RNR NAK), pad, data; srq (number in the
// XRCETH), level and extent (of a FLUSH), and for datagrams qkey, ah (the destination),
// from and dest (QP numbers). Fields that a claim omits must be absent or zero in the
// packet, except credits and pad, and from and dest if they are the QPs of the scene.
// credits=none is the AETH code for "no credits counted". A SACK has trigger, and has, a list of PSNs such as
// has=102..103,105. With CE the packet is marked on its way: it has met congestion.
//
// # Inputs
//
//	region R len=N [access=RIGHT,..] [late] [pd=other]
//	     RIGHT: write, read, atomic, local, invalidate, bind, flush-global,
//	     flush-persistent, zero-based, none
//	region peer P len=N                 memory of the scripted peer: an address, no bytes
//	deregister R                        also the buffer of a request: send1, recv1 ...
//	fault R                             late memory: every access fails from now on
//	set R+0 = 41                        a 64-bit number
//	mw W [type=1|2] [pd=other]          a memory window; type 2 by default
//	srq NUM [pd=other] [xrcd=other]     an XRC SRQ, with a completion queue of its own
//	limit N [srq=NUM]                   arms the limit event of an SRQ
//	ah NUM [pd=other]                   an address handle
//	post send|write|read|cas|faa|atomic-write|recv ID [len=N] [to=R+0] [imm=N] [inv=R]
//	     [sges=N] [compare=N] [swap=N] [add=N] [rkey=N] [lkey=bad] [inline] [late]
//	     [fence] [solicited] [unsignaled] [refused] [srq=NUM]
//	     [ah=NUM] [qkey=N] [dest=QPN]
//	post flush ID to=R+0 [len=N] level=global|persistent|global,persistent
//	     [extent=range|region]
//	post bind ID mw=W to=R+0 len=N [access=RIGHT,..]
//	                                    W names this piece from here on
//	post local-inv ID inv=R             or a window
//	arm send|recv [solicited]           ask for an event of a completion queue
//	advance DURATION                    deadlines on the way must cause no output
//	modify STATE [defaults] [key=value ...] [notify] [without=ATTR,..] [with=ATTR,..]
//	     [refused TEXT]                 the error contains TEXT
//	placed [nth=N] [fails]              a write to late memory ends
//	fetched [nth=N] [fails]             a read of late memory ends
//
// # Claims
//
//	wc OPERATION ID STATUS [len=N] [imm=N] [inv=R] [data=M,..] [was=N] [from=QPN] [srq=NUM]
//	     OPERATION: as in post, or recv-imm; srq: in the completion queue of that SRQ
//	event NAME                          as in ibv_event_type; those of SRQs are the
//	                                    first QP's
//	notify send|recv                    the event of an armed completion queue
//	mem R+0 = 9[0:1024]                 these bytes have arrived; or a 64-bit number
//	persisted R N                       FLUSH has made late memory persistent N times
//	state NAME
//	nothing                             there is no packet, completion or event
//	timer DURATION|none                 until the QP's deadline
//	placing N                           writes to late memory under way
//	fetching N                          reads of late memory under way
//	count NAME N                        a counter of qp.Stats
//	window N                            the destination's congestion window, in packets
//	pace N                              the rate at which packets leave there, in Mb/s; 0: no limit
package script
