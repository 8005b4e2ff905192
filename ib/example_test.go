package ib_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
)

// A verb that refuses an attribute says which one, and what is allowed. errors.Is tells what
// kind of error it is, as for all errors of devices.
func Example() {
	network := mem.NewNetwork() // a network in memory; host.Open takes one of the machine's
	addr := ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	var dev ib.Device
	dev, err := roce.Open(network.Open([]ib.GID{addr}, mem.Options{}), roce.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 16})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, Cap: ib.QPCap{MaxSendWR: 1}})
	if err != nil {
		log.Fatal(err)
	}

	err = qp.Modify(ib.QPAttr{State: ib.StateInit, Port: 2}, ib.AttrState|ib.AttrPort|ib.AttrPKeyIndex|ib.AttrAccess)
	var attr *ib.AttrError
	if errors.As(err, &attr) {
		fmt.Printf("%s is %v, allowed is %s\n", attr.Attr, attr.Value, attr.Allowed)
	}
	fmt.Println("invalid:", errors.Is(err, ib.ErrInvalid))

	n, err := qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend}}) // in RESET
	fmt.Printf("posted %d; wrong state: %v\n", n, errors.Is(err, ib.ErrState))
	fmt.Println("busy:", errors.Is(pd.Close(), ib.ErrBusy)) // the QP uses it
	// Output:
	// Port is 2, allowed is 1, the only port
	// invalid: true
	// posted 0; wrong state: true
	// busy: true
}
