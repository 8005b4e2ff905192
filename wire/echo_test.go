package wire

import (
	"bytes"
	"testing"
)

func TestEcho(t *testing.T) {
	ask, answer := EchoAsk{Session: 1 << 63, Nonce: 2}, EchoAnswer{Nonce: 3, ECN: CE, Received: 4, Wall: -5}
	var gotAsk EchoAsk
	if b := ask.Append(nil); !gotAsk.Decode(b) || gotAsk != ask || !gotAsk.Decode(append(b, make([]byte, 68)...)) {
		t.Errorf("got %+v, want %+v, also with zeros behind it", gotAsk, ask)
	}
	var got EchoAnswer
	b := answer.Append(nil)
	if len(b) != EchoAnswerLen || !got.Decode(b) || got != answer {
		t.Errorf("got %+v, want %+v", got, answer)
	}
	for name, wrong := range map[string][]byte{
		"nothing": nil, "short": b[:len(b)-1], "a question": ask.Append(nil),
		"a byte behind it": append(bytes.Clone(b), 0, 1), "another version": with(b, 4, 2),
		"ECN of 3 bits": with(b, 5, 4),
		"reserved":      with(b, 7, 1), "reserved at the end": with(b, 31, 1),
	} {
		if got.Decode(wrong) {
			t.Errorf("%s is taken for an answer", name)
		}
	}
}

// with returns a copy of b with another byte.
func with(b []byte, at int, value byte) []byte {
	b = bytes.Clone(b)
	b[at] = value
	return b
}

// FuzzEcho: what is taken is written as it was.
func FuzzEcho(f *testing.F) {
	f.Add((&EchoAsk{Session: 1, Nonce: 2}).Append(nil))
	f.Add((&EchoAnswer{Nonce: 1, ECN: ECT0, Received: 7, Wall: 9}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ask EchoAsk
		if ask.Decode(b) && !bytes.HasPrefix(b, ask.Append(nil)) {
			t.Errorf("%x becomes %x", b, ask.Append(nil))
		}
		var answer EchoAnswer
		if answer.Decode(b) && !bytes.HasPrefix(b, answer.Append(nil)) {
			t.Errorf("%x becomes %x", b, answer.Append(nil))
		}
	})
}
