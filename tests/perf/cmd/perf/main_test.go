package main

import (
	"io"
	"strings"
	"testing"
)

func TestBadArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-mtu 1500,x":      "-mtu",
		"-mtu 100":         "1280 to 65535",
		"-rounds 0":        "at least one round",
		"-duration -1s":    "some time",
		"-rows (":          "-rows",
		"-rows x y":        "argument",
		"-list -mtu 15000": "",
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("perf %s: %v, want an error with %q", args, err, want)
		}
	}
}

func TestList(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-list", "-vm", "-rows", "rdma_rxe"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	const want = `two emulated guests, MTU 1500
  rdma_rxe RC WRITE 64 KiB (ib_write_bw) [Gb/s]
`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("printed %q, want it to begin with %q", &out, want)
	}
}
