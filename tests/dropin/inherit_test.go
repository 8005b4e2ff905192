//go:build linux

package dropin

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestInherited: a child of a program gets nothing of its parent's by the descriptors that it inherits, with the rights
// of another user, of none, or of its parent.
func TestInherited(t *testing.T) {
	program := compileVerbs(t, "testdata/inherit.c")
	for _, how := range []string{"exec", "fork", "clone"} {
		t.Run("started/"+how, func(t *testing.T) { // over a daemon that `goroced run` starts
			newUser(t).do(t, "run", "--", program, how).ok(t)
		})
		t.Run("root/"+how, func(t *testing.T) {
			if os.Geteuid() != 0 {
				require.Missing(t, "needs root, to make a child of another user")
			}
			h := &host{dir: userDir(t), libs: libs(t), root: true}
			h.startDaemon(t, "--addr", ownAddr(t))
			h.run(t, program, how).ok(t)
		})
	}
}

// TestForkedMeanwhile: a child that is forked while another thread makes a connection, or objects, has no part of them.
func TestForkedMeanwhile(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_born.c")
	t.Run("greeting", func(t *testing.T) {
		h := &host{dir: userDir(t), libs: libs(t)}
		h.socket = filepath.Join(h.dir, "s")
		silent, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: h.socket})
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if err := os.Chmod(h.socket, 0o777); err != nil {
			t.Fatal(err)
		}
		h.with(t, []string{"LD_LIBRARY_PATH=" + h.libs}, program, "greeting").ok(t)
	})
	t.Run("making", func(t *testing.T) {
		newHost(t, nil).run(t, program, "making", fmt.Sprint(rounds(300, 2000, 2000))).ok(t)
	})
}

// TestForkedConnects: a child of a process that has used librdmacm connects by IDs that it makes itself.
func TestForkedConnects(t *testing.T) {
	besides(t)
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs rdma/rdma_cma.h of package librdmacm-dev: %v", err)
	}
	program := compile(t, "testdata/cm_forked.c", "-lrdmacm", "-libverbs")
	h := newHost(t, nil)
	h.run(t, program, h.addr.String()).ok(t)
}
