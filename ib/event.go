package ib

// EventType says what an asynchronous event reports. Values are those of ibv_event_type.
type EventType uint8

// Asynchronous events (IBTA 11.6.3).
const (
	EventCQErr       EventType = 0  // CQ overrun
	EventQPFatal     EventType = 1  // an error of the QP that no completion can report
	EventQPReqErr    EventType = 2  // the peer sent an invalid request
	EventQPAccessErr EventType = 3  // the peer violated access rights
	EventCommEst     EventType = 4  // first packet arrived while in RTR
	EventSQDrained   EventType = 5  // SQD reached, nothing in flight
	EventDeviceFatal EventType = 8  // the link is gone
	EventPortActive  EventType = 9  // the network interface came up
	EventPortErr     EventType = 10 // the network interface went down
	EventSRQErr      EventType = 14 // the SRQ's ring is corrupt
	EventSRQLimit    EventType = 15 // fewer receives than the armed limit are left
	EventLastWQE     EventType = 16 // a QP on an SRQ will take no more receives
	EventGIDChange   EventType = 18 // an address of the port came or went
	numEventTypes              = 19
)

// String returns the event's name in the words of ibv_event_type_str.
func (t EventType) String() string { return name(eventText[:], int(t), "EventType") }

var eventText = [numEventTypes]string{
	EventCQErr: "CQ error", EventQPFatal: "local work queue catastrophic error",
	EventQPReqErr:    "invalid request local work queue error",
	EventQPAccessErr: "local access violation work queue error", EventCommEst: "communication established",
	EventSQDrained: "send queue drained", EventDeviceFatal: "local catastrophic error", EventPortActive: "port active",
	EventPortErr: "port error", EventSRQErr: "SRQ catastrophic error", EventSRQLimit: "SRQ limit reached",
	EventLastWQE: "last WQE reached", EventGIDChange: "GID table change",
}

// Event is an asynchronous event. QP, CQ or SRQ is the object that it is about; all are nil if it is about the device.
type Event struct {
	Type EventType
	QP   QP
	CQ   CQ
	SRQ  SRQ
}
