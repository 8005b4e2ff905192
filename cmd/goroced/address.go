package main

import (
	"fmt"
	"net/netip"
	"reflect"

	"github.com/alecthomas/kong"
)

// addresses has kong say what an address is where it is given something else.
var addresses = kong.TypeMapper(reflect.TypeFor[netip.Addr](), kong.MapperFunc(
	func(ctx *kong.DecodeContext, to reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("IP", &text); err != nil {
			return err
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("%q is no IP address; want one such as 192.0.2.1, or fe80::1%%eth0 with its interface",
				text)
		}
		to.Set(reflect.ValueOf(a))
		return nil
	}))
