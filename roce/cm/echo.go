package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// echoSessions is how many sessions of questions are counted at a time; the oldest is forgotten. Who floods a port with
// sessions makes the counts of others begin anew, and no more.
const echoSessions = 64

// echoSession counts the questions of one who asks.
type echoSession struct {
	from     ib.GID
	session  uint64
	nonce    uint64 // of the last one: a copy does not count
	received uint32
}

// echo returns the private data of the REJ of a REQ that asks what has become of it (wire.EchoAsk); nil if it does not.
func (m *Manager) echo(in *input) []byte {
	var ask wire.EchoAsk
	if in.req.ServiceID != wire.EchoService || m.opts.Wall == nil || !ask.Decode(in.req.PrivateData) {
		return nil
	}
	s := m.echoSession(in.path.Remote, ask.Session)
	if s.received == 0 || s.nonce != ask.Nonce {
		s.received++
	}
	s.nonce = ask.Nonce
	answer := wire.EchoAnswer{Nonce: ask.Nonce, ECN: wire.ECNOf(in.path.TrafficClass), Received: s.received,
		Wall: m.opts.Wall()}
	return answer.Append(nil)
}

// echoSession returns a session, a new one if it is not known.
func (m *Manager) echoSession(from ib.GID, session uint64) *echoSession {
	for i := range m.echoes {
		if s := &m.echoes[i]; s.from == from && s.session == session {
			return s
		}
	}
	if len(m.echoes) == echoSessions {
		m.echoes = append(m.echoes[:0], m.echoes[1:]...)
	}
	m.echoes = append(m.echoes, echoSession{from: from, session: session})
	return &m.echoes[len(m.echoes)-1]
}
