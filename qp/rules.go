package qp

import "github.com/goroce/goroce/ib"

// rule says which inputs a state accepts, and which packets it sends. Inputs that are
// not accepted have no effect; packets that are not accepted are counted.
type rule struct {
	postSend  bool // PostSend is accepted
	postRecv  bool // PostRecv is accepted
	fetch     bool // Doorbell copies send requests out of the ring
	flush     bool // work completes with WCWRFlushErr at once
	flushSend bool // send requests complete with WCWRFlushErr at once
	request   bool // request packets go to the responder
	response  bool // response packets go to the completer
	respond   bool // the responder sends
	resend    bool // the requester sends what it has begun
	begin     bool // the requester begins new messages
}

// rules is the state machine of IBTA 10.3.1 by state and input. RESET and INIT have no
// peer. RTR only receives. SQD finishes messages that have begun. SQE, of UC and UD,
// sends nothing and flushes send requests. ERR only flushes.
var rules = [ib.NumQPStates]rule{
	ib.StateReset: {},
	ib.StateInit:  {postRecv: true},
	ib.StateRTR:   {postRecv: true, request: true, respond: true},
	ib.StateRTS: {postSend: true, postRecv: true, fetch: true, request: true, response: true,
		respond: true, resend: true, begin: true},
	ib.StateSQD: {postSend: true, postRecv: true, fetch: true, request: true, response: true,
		respond: true, resend: true},
	ib.StateSQE: {postSend: true, postRecv: true, fetch: true, flushSend: true, request: true, respond: true},
	ib.StateErr: {postSend: true, postRecv: true, fetch: true, flush: true},
}

// CanPostSend reports whether a state accepts send requests (IBTA 10.8.3.2: in
// RESET, INIT and RTR posting is an immediate error).
func CanPostSend(s ib.QPState) bool { return rules[s].postSend }

// CanPostRecv reports whether a state accepts receive requests.
func CanPostRecv(s ib.QPState) bool { return rules[s].postRecv }
