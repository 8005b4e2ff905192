package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// installCommands are the commands of the document that install something, as a reader copies them.
func installCommands(t *testing.T, doc string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(text), -1) {
		if strings.Contains(m, "install -D") {
			blocks = append(blocks, m)
		}
	}
	return blocks
}

// TestInstall runs the installation of docs/daemon.md and docs/dropin.md word by word, with a user's name for USER, on
// copies of /usr and /etc that end with the test, and in a network of its own. There is no systemd to start the
// service: systemctl enables the units, and what they start is started by hand.
func TestInstall(t *testing.T) {
	t.Parallel()
	require.Root(t)
	for _, name := range []string{"unshare", "systemd-sysusers", "systemctl", "usermod", "nft", "setpriv"} {
		require.Command(t, name)
	}
	blocks := installCommands(t, "../../docs/daemon.md")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks install something, want the units and the firewall:\n%s", len(blocks), blocks)
	}
	checks := installed
	if require.Full() { // a C compiler takes its time
		require.Command(t, "cc")
		blocks = append(blocks, installCommands(t, "../../docs/dropin.md")...)
		checks += "ls /usr/lib/goroce/libibverbs.so.1 /usr/lib/goroce/libgoroce-sys.so\n"
	}
	clone := t.TempDir()
	dist, err := filepath.Abs("../../dist")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{program: "goroced", dist: "dist"} {
		if err := os.Symlink(from, filepath.Join(clone, to)); err != nil {
			t.Fatal(err)
		}
	}
	script := overlays + strings.ReplaceAll(strings.Join(blocks, ""), "USER", "nobody") + checks
	sh := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-euxc", script)
	sh.Dir, sh.Env = clone, append(os.Environ(), "LAYER="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// overlays makes /usr and /etc writable without a trace, and takes --now away from systemctl.
const overlays = `
mount -t tmpfs none "$LAYER"
for dir in usr etc; do
	mkdir -p "$LAYER/$dir" "$LAYER/$dir.work"
	mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$LAYER/$dir,workdir=$LAYER/$dir.work" "/$dir"
done
ip link set lo up
systemctl() { verb=$1; shift 2; command systemctl "$verb" "$@"; }
`

// installed checks what the commands have made: the daemon's user, its group with a member, units that are enabled, a
// firewall that is loaded, and a program that this user can run.
const installed = `
id goroce
id -nG nobody | grep -w goroce
command systemctl is-enabled goroced.socket goroced.service
nft list ruleset | grep 4791
grep -x ExecStart=/usr/bin/goroced.* /usr/lib/systemd/system/goroced.service
setpriv --reuid goroce --regid goroce --clear-groups /usr/bin/goroced version
`
