//go:build linux

package dropin

import (
	"os"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestInherited: a child of a program gets nothing of its parent's by the descriptors that it inherits, with the rights
// of another user, of none, or of its parent.
func TestInherited(t *testing.T) {
	program := compileVerbs(t, "testdata/inherit.c")
	for _, how := range []string{"exec", "fork"} {
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
