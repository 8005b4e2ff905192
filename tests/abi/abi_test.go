package abi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce"
	protocol "github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// structs maps the C names of structs to the Go types.
var structs = map[string]any{
	"header": protocol.Header{}, "hello": protocol.Hello{}, "hello_reply": protocol.HelloReply{},
	"open":         protocol.Open{},
	"device_reply": protocol.DeviceReply{},
	"open_reply":   protocol.OpenReply{}, "event": protocol.Event{}, "completion": protocol.Completion{},
	"port":       protocol.Port{},
	"port_reply": protocol.PortReply{}, "gid_entry": protocol.GIDEntry{}, "pkey_reply": protocol.PKeyReply{},
	"clock_reply": protocol.ClockReply{}, "object": protocol.Object{}, "create_cq": protocol.CreateCQ{},
	"resize_cq": protocol.ResizeCQ{},
	"ring":      protocol.Ring{}, "reg_mr": protocol.RegMR{}, "reg_reply": protocol.RegReply{},
	"rereg_mr": protocol.ReregMR{},
	"alloc_mw": protocol.AllocMW{}, "ah": protocol.AH{}, "create_ah": protocol.CreateAH{},
	"modify_ah":  protocol.ModifyAH{},
	"create_srq": protocol.CreateSRQ{},
	"srq_attr":   protocol.SRQAttr{}, "create_qp": protocol.CreateQP{}, "qp_attr": protocol.QPAttr{},
	"group":   protocol.Group{},
	"failure": protocol.Failure{}, "qp_failure": protocol.QPFailure{},
	"counter": protocol.Counter{}, "close": protocol.Close{}, "close_reply": protocol.CloseReply{},
	"alloc_xrcd": protocol.AllocXRCD{}, "open_qp": protocol.OpenQP{},
	"cm_signal": protocol.CMSignal{}, "cm_addr": protocol.CMAddr{}, "create_cm_id": protocol.CreateCMID{},
	"cm_bind":   protocol.CMBind{},
	"cm_listen": protocol.CMListen{}, "cm_resolve": protocol.CMResolve{}, "cm_param": protocol.CMParam{},
	"cm_connect": protocol.CMConnect{},
	"cm_reject":  protocol.CMReject{}, "cm_value": protocol.CMValue{}, "cm_delay": protocol.CMDelay{},
	"cm_scope":   protocol.CMScope{},
	"open_cm":    protocol.OpenCM{},
	"cm_id_attr": protocol.CMIDAttr{},
	"cm_event":   protocol.CMEvent{},
}

// declarations writes the C code of docs/abi.md to a header file, and returns its directory.
func declarations(t *testing.T) string {
	t.Helper()
	require.Command(t, "gcc")
	page, err := os.ReadFile("../../docs/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	var code bytes.Buffer
	for _, block := range regexp.MustCompile("(?s)```c\n(.*?)```").FindAllSubmatch(page, -1) {
		code.Write(block[1])
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "goroce.h"), code.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compile compiles C source that includes the header, and returns the program's path.
func compile(t *testing.T, dir, source string) string {
	t.Helper()
	program := filepath.Join(dir, "program")
	cmd := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wpadded", "-O1", "-I", dir, "-o", program,
		source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

// layout adds the offsets of a struct's fields to starts, except those of reserved fields. It
// descends into nested structs.
func layout(typ reflect.Type, at uintptr, starts map[uintptr]bool) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch {
		case f.Type.Kind() == reflect.Struct:
			layout(f.Type, at+f.Offset, starts)
		case f.Name != "_":
			starts[at+f.Offset] = true
		}
	}
}

// TestDeclarations checks that every struct of docs/abi.md has the size of the Go struct, and
// fields at the same offsets.
func TestDeclarations(t *testing.T) {
	dir := declarations(t)
	page, err := os.ReadFile(filepath.Join(dir, "goroce.h"))
	if err != nil {
		t.Fatal(err)
	}
	var main bytes.Buffer
	main.WriteString("#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include \"goroce.h\"\nint " +
		"main(void) {\n")
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?s)struct goroce_(\w+) \{(.*?)\n\};`).FindAllStringSubmatch(string(page),
		-1) {
		name, body := m[1], regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(m[2], "")
		found[name] = true
		fmt.Fprintf(&main, "printf(\"%s %%zu\", sizeof(struct goroce_%s));\n", name, name)
		for _, statement := range strings.Split(body, ";") {
			for i, declarator := range strings.Split(statement, ",") {
				words := strings.Fields(declarator)
				if len(words) == 0 || i == 0 && len(words) < 2 {
					continue
				}
				field, _, _ := strings.Cut(words[len(words)-1], "[")
				if !strings.HasPrefix(field, "reserved") {
					fmt.Fprintf(&main, "printf(\" %%zu\", offsetof(struct goroce_%s, %s));\n", name, field)
				}
			}
		}
		main.WriteString("puts(\"\");\n")
	}
	main.WriteString("return 0; }\n")
	source := filepath.Join(dir, "main.c")
	if err := os.WriteFile(source, main.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(compile(t, dir, source)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		v, ok := structs[words[0]]
		if !ok {
			continue // of package ring; TestClient tests these
		}
		typ := reflect.TypeOf(v)
		want := []string{fmt.Sprint(typ.Size())}
		starts := map[uintptr]bool{}
		layout(typ, 0, starts)
		for at := range typ.Size() {
			if starts[at] {
				want = append(want, fmt.Sprint(at))
			}
		}
		// A nested struct starts at the offset of its first field.
		if got := words[1:]; strings.Join(got[:1], "") != want[0] || !subset(got[1:], want[1:]) {
			t.Errorf("goroce_%s has size and fields at %v, %v has %v", words[0], got, typ, want)
		}
	}
	for name := range structs {
		if !found[name] {
			t.Errorf("docs/abi.md lacks goroce_%s", name)
		}
	}
}

func subset(some, all []string) bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	for _, s := range some {
		if !set[s] {
			return false
		}
	}
	return true
}

// TestClient runs the client in C. It creates two QPs and transfers a SEND and a WRITE between
// them, with events; two more QPs connect by address, the client being both ends.
func TestClient(t *testing.T) {
	dir := declarations(t)
	program := compile(t, dir, "testdata/client.c")
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := roce.Open(wrap.Seal(wrap.Loopback(l)), roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s, err := server.New([]roce.Device{dev}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	out, err := exec.CommandContext(ctx, program, socket).CombinedOutput()
	if err != nil {
		t.Errorf("the client: %v\n%s", err, out)
	}
	for _, want := range []string{"received: hello from C", "written: hello from C",
		"request on ID of the listener: knock",
		"connected: hello from C", "disconnected"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the client does not say %q, but:\n%s", want, out)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
