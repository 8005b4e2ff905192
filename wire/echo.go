package wire

import "encoding/binary"

// EchoService is a service ID that no application has: of those that are administered locally (IBTA A3.2.3), with a
// name. Whoever speaks RoCEv2 has a connection manager, and that rejects a request for it, for reason 8. A device of
// this project that is asked by an EchoAsk answers in the REJ by an EchoAnswer. It is the same REJ, as long as any
// other, and to the same place: an answer costs the network nothing that it would not carry anyway.
const EchoService = 0x02<<56 | 'g'<<40 | 'o'<<32 | 'r'<<24 | 'o'<<16 | 'c'<<8 | 'e'

// EchoAsk is the private data of a REQ for EchoService: what has become of this packet on its way?
type EchoAsk struct {
	Session uint64 // of the one who asks; the answer counts its questions
	Nonce   uint64 // of the question
}

// EchoAnswer is the private data of the REJ.
type EchoAnswer struct {
	Nonce    uint64 // of the question
	ECN      ECN    // with which the question has arrived
	Received uint32 // questions of the session that have arrived, this one included
	Wall     int64  // when it has arrived, by the clock of the one who answers: ns since 1970
}

// Lengths of what they have. The rest of the private data is zero.
const (
	echoAskLen    = 24
	EchoAnswerLen = 32
	echoVersion   = 1
)

var echoAsk, echoAnswer = [4]byte{'G', 'O', 'E', 'Q'}, [4]byte{'G', 'O', 'E', 'A'}

// Append appends the question.
func (a *EchoAsk) Append(b []byte) []byte {
	b = append(append(b, echoAsk[:]...), echoVersion, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, a.Session)
	return binary.BigEndian.AppendUint64(b, a.Nonce)
}

// Decode reads private data, and reports whether they are a question.
func (a *EchoAsk) Decode(b []byte) bool {
	if !echoHead(b, echoAsk, echoAskLen) || b[5] != 0 {
		return false
	}
	*a = EchoAsk{Session: binary.BigEndian.Uint64(b[8:]), Nonce: binary.BigEndian.Uint64(b[16:])}
	return true
}

// Append appends the answer.
func (a *EchoAnswer) Append(b []byte) []byte {
	b = append(append(b, echoAnswer[:]...), echoVersion, uint8(a.ECN), 0, 0)
	b = binary.BigEndian.AppendUint64(b, a.Nonce)
	b = binary.BigEndian.AppendUint64(b, uint64(a.Wall))
	b = binary.BigEndian.AppendUint32(b, a.Received)
	return append(b, 0, 0, 0, 0)
}

// Decode reads private data, and reports whether they are an answer.
func (a *EchoAnswer) Decode(b []byte) bool {
	if !echoHead(b, echoAnswer, EchoAnswerLen) || b[5] > uint8(CE) || [4]byte(b[28:]) != [4]byte{} {
		return false
	}
	*a = EchoAnswer{Nonce: binary.BigEndian.Uint64(b[8:]), ECN: ECN(b[5]),
		Wall: int64(binary.BigEndian.Uint64(b[16:])), Received: binary.BigEndian.Uint32(b[24:])}
	return true
}

// echoHead checks the length, the name and the version, and that what is behind n bytes is zero.
func echoHead(b []byte, name [4]byte, n int) bool {
	if len(b) < n || [4]byte(b) != name || b[4] != echoVersion || b[6] != 0 || b[7] != 0 {
		return false
	}
	for _, c := range b[n:] {
		if c != 0 {
			return false
		}
	}
	return true
}
