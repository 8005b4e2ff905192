package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// service has the flags that select the requested service.
type service struct {
	Port     int    `short:"p" default:"7471" help:"Port."`
	Datagram bool   `short:"u" help:"A datagram service."`
	Data     string `help:"Private data."`
}

// dial sends a request and prints the answer. A refusal counts as success, too.
type dial struct {
	common
	service
	Host string `arg:"" help:"The server."`
}

func (d *dial) Run() error {
	return d.with(func(s *station) error {
		var rejected *rdmacm.RejectError
		answer, err := d.ask(s)
		switch {
		case errors.As(err, &rejected):
			fmt.Println(err)
			fmt.Printf("rejected: reason %d status %d private data %s\n", rejected.Reason, rejected.Status,
				text(rejected.PrivateData))
			return nil
		case err != nil:
			return err
		}
		fmt.Printf("accepted: private data %s\n", text(answer))
		return nil
	})
}

// ask returns the private data of the answer.
func (d *dial) ask(s *station) ([]byte, error) {
	o := rdmacm.Config{PD: s.pd, PrivateData: []byte(d.Data)}
	if d.Datagram {
		o = rdmacm.Config{Service: ib.UD, PrivateData: o.PrivateData}
		answer, err := s.cm.Resolve(s, at(d.Host, d.Port), o)
		if err != nil {
			return nil, err
		}
		return answer.PrivateData, nil
	}
	conn, err := s.cm.Dial(s, at(d.Host, d.Port), o)
	if err != nil {
		return nil, err
	}
	return conn.PrivateData(), errors.Join(conn.Disconnect(s), conn.Close())
}

// reject refuses one request.
type reject struct {
	common
	service
}

func (r *reject) Run() error {
	return r.with(func(s *station) error {
		kind := ib.RC
		if r.Datagram {
			kind = ib.UD
		}
		l, err := s.listen(r.Port, kind)
		if err != nil {
			return err
		}
		defer l.Close()
		request, err := l.Request(s)
		if err != nil {
			return err
		}
		fmt.Printf("request: private data %s\n", text(request.PrivateData()))
		return request.Reject([]byte(r.Data))
	})
}

// text formats private data, without the zeros with which Linux pads it.
func text(b []byte) string { return fmt.Sprintf("%q", bytes.TrimRight(b, "\x00")) }
