//go:build linux

package install

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/require"
)

// TestContainers: the image plays by podman, podman-compose and docker-compose what dist/container/compose.yaml says.
func TestContainers(t *testing.T) {
	t.Parallel()
	folder := released(t)
	root := cleanRoot(t, "bookworm")
	for _, tool := range []string{"podman", "podman-compose", "docker-compose", "runc", "unshare"} {
		require.Command(t, tool)
	}
	dir := t.TempDir()
	writeBlocks(t, filepath.Join(dir, "commands"))
	script, err := filepath.Abs("testdata/containers.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--propagation", "private", "bash",
		script, folder, root, dir)
	cmd.Dir = "../.."
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n+ : all is well\n") ||
		!regexp.MustCompile(`(?m)^ 65536 +5000 +\d`).Match(out) || !strings.Contains(string(out), "1000 iters in ") {
		t.Errorf("%v, want that all is well\n%s", err, out)
	}
}

// TestImage: the layout has an image for each processor, as skopeo and others read it, with the daemon and the device
// plugin.
func TestImage(t *testing.T) {
	image := filepath.Join(released(t), "goroced_"+version+"_image.oci.tar")
	var digests []string
	programs := 0 // layers that have them
	for _, m := range regexp.MustCompile(`(?m) blobs/sha256/([0-9a-f]{64})$`).FindAllStringSubmatch(
		output(t, "tar", "-tvf", image), -1) {
		digests = append(digests, m[1])
		sum := output(t, "sh", "-c", "tar -xOf "+image+" blobs/sha256/"+m[1]+" | sha256sum")
		if !strings.HasPrefix(sum, m[1]) {
			t.Errorf("blob %s has the sum %s, want that of its name", m[1], sum)
		}
		// Of a blob that is no layer tar lists nothing.
		list, _ := exec.Command("sh", "-c", "tar -xOf "+image+" blobs/sha256/"+m[1]+" | tar -tz").Output()
		if files := string(list); strings.Contains(files, "usr/bin/goroced\n") &&
			strings.Contains(files, "usr/bin/goroced-device-plugin\n") {
			programs++
		}
	}
	all := output(t, "sh", "-c", "tar -xOf "+image+" --wildcards 'blobs/sha256/*' | strings")
	for _, arch := range []string{"amd64", "arm64"} {
		if !strings.Contains(all, `"platform":{"architecture":"`+arch+`","os":"linux"}`) {
			t.Errorf("no image for %s in %v", arch, digests)
		}
	}
	if programs != 2 {
		t.Errorf("%d layers have both programs, want one for each processor", programs)
	}
}
