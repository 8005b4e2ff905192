// Package ask is a protocol of questions and answers over an unreliable connection, and a test that shows what happens
// when its author forgets that a question can be lost:
//
//	go test ./examples/faults/ask             # each question is asked up to twelve times
//	go test ./examples/faults/ask -tries=1    # asked once: fails, with a seed
package ask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

const patience = time.Millisecond // before a question is asked again; then twice that, and so on

// Config is that of both ends: messages are immediate data, so receives need no memory.
var Config = rdmacm.Config{Service: ib.UC, Prepare: func(c *rdmacm.Conn) error {
	_, err := c.QP().PostRecv(make([]ib.RecvWR, 8))
	return err
}}

// Square asks for the square of n. It asks up to so many times.
func Square(ctx context.Context, c *rdmacm.Conn, n uint8, tries int) (uint16, error) {
	for try := range tries {
		if err := send(c, uint32(n)); err != nil {
			return 0, err
		}
		wait, cancel := context.WithTimeout(ctx, patience<<try)
		answer, err := receive(wait, c)
		for err == nil && answer>>16 != uint32(n) { // the answer to an earlier question
			answer, err = receive(wait, c)
		}
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return uint16(answer), err
		}
	}
	return 0, fmt.Errorf("no answer to %d, asked %d times", n, tries)
}

// Serve answers questions until ctx ends.
func Serve(ctx context.Context, c *rdmacm.Conn) error {
	for {
		n, err := receive(ctx, c)
		if err == nil {
			err = send(c, n<<16|n*n)
		}
		if err != nil {
			return err
		}
	}
}

func send(c *rdmacm.Conn, message uint32) error {
	_, err := c.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSendImm, Flags: ib.SendSignaled, Imm: message}})
	return err
}

// receive returns the next message. It skips the completions of sends, which are on the same CQ.
func receive(ctx context.Context, c *rdmacm.Conn) (message uint32, err error) {
	wc, err := ib.WaitOne(ctx, c.RecvCQ())
	for err == nil && wc.Opcode != ib.WCRecv {
		wc, err = ib.WaitOne(ctx, c.RecvCQ())
	}
	if err != nil {
		return 0, err
	}
	_, err = c.QP().PostRecv(make([]ib.RecvWR, 1))
	return wc.Imm, err
}
