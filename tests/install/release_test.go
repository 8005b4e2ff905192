package install

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// wanted are the files of a release.
var wanted = []string{
	"SHA256SUMS",
	"goroced-0.9.1-1.aarch64.rpm", "goroced-0.9.1-1.x86_64.rpm",
	"goroced-device-plugin_0.9.1_linux_amd64.cdx.json", "goroced-device-plugin_0.9.1_linux_arm64.cdx.json",
	"goroced_0.9.1-1_amd64.deb", "goroced_0.9.1-1_arm64.deb",
	"goroced_0.9.1_image.oci.tar",
	"goroced_0.9.1_linux_amd64.cdx.json", "goroced_0.9.1_linux_amd64.tar.gz",
	"goroced_0.9.1_linux_arm64.cdx.json", "goroced_0.9.1_linux_arm64.tar.gz",
}

// TestReleaseModule: the tests of the program that makes releases, which is a module of its own.
func TestReleaseModule(t *testing.T) {
	require.FullRun(t, "it tests module dist/release")
	output(t, "go", "-C", "../../dist/release", "vet", "./...")
	output(t, "go", "-C", "../../dist/release", "test", "./...")
}

// TestReproducible: a release that is made from a clone in another folder is the same, bit for bit.
func TestReproducible(t *testing.T) {
	a := released(t)
	clone := filepath.Join(work, "some/other/folder")
	output(t, "git", "clone", "--quiet", "../..", clone)
	b, err := release(clone, "second")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(a)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
		one, err1 := os.ReadFile(filepath.Join(a, f.Name()))
		two, err2 := os.ReadFile(filepath.Join(b, f.Name()))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs, %v, %v", f.Name(), err1, err2)
		}
	}
	if !slices.Equal(names, wanted) {
		t.Errorf("files\n%v, want\n%v", names, wanted)
	}
	if out := output(t, "sh", "-c", "cd "+a+" && "+blocks["checking-a-release-1"]); strings.Count(out, ": OK\n") !=
		len(names)-1 {
		t.Error(out)
	}
}

// unpacked unpacks the archive for a processor and returns its folder.
func unpacked(t *testing.T, arch string) string {
	t.Helper()
	name := "goroced_" + version + "_linux_" + arch
	dir := t.TempDir()
	output(t, "tar", "-xzf", filepath.Join(released(t), name+".tar.gz"), "-C", dir)
	return filepath.Join(dir, name)
}

// TestArchives: each archive has programs and libraries for its processor, and all else that an installation has.
func TestArchives(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			dir := unpacked(t, arch)
			for _, name := range []string{"bin/goroced", "lib/goroce/libibverbs.so.1", "lib/goroce/libgoroce-sys.so"} {
				f, err := elf.Open(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				libs, err := f.ImportedLibraries()
				_ = f.Close()
				if f.Machine != machine || err != nil || (name == "bin/goroced") != (len(libs) == 0) {
					t.Errorf("%s is for %v, want %v, and needs %v, %v; want none only of bin/goroced", name, f.Machine,
						machine, libs, err)
				}
			}
			for _, name := range []string{"lib/systemd/system/goroced.service", "lib/systemd/system/goroced.socket",
				"lib/systemd/system/goroced@.service", "lib/systemd/system/goroced@.socket",
				"lib/sysusers.d/goroce.conf", "share/man/man1/goroced.1", "share/man/man1/goroced-serve.1",
				"share/man/man5/goroced.toml.5", "share/man/man7/goroced-verbs.7",
				"share/bash-completion/completions/goroced", "share/zsh/site-functions/_goroced",
				"share/fish/vendor_completions.d/goroced.fish", "share/doc/goroced/LICENSE",
				"share/doc/goroced/third-party-licences.txt", "share/doc/goroced/examples/goroce.nft",
				"share/doc/goroced/examples/goroced.toml", "share/doc/goroced/examples/grafana/goroce.json",
				"share/doc/goroced/examples/prometheus/goroce.rules.yml",
				"share/doc/goroced/examples/container/compose.yaml",
				"share/doc/goroced/examples/kubernetes/example/job.yaml"} {
				if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 ||
					info.Mode().Perm() != 0o644 {
					t.Errorf("%s: %v, %v; want it not empty, of mode 0644", name, info, err)
				}
			}
		})
	}
}

// TestArchiveRuns: the program says what it is, on either processor, and finds its libraries beside it.
func TestArchiveRuns(t *testing.T) {
	line := regexp.MustCompile(`^goroced v0\.9\.1, revision ` + head() + ` of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, go1\S+, linux/`)
	for arch, emulator := range map[string]string{"amd64": "", "arm64": "qemu-aarch64-static"} {
		program := filepath.Join(unpacked(t, arch), "bin/goroced")
		words := []string{program, "version"}
		if emulator != "" {
			words = append([]string{require.Command(t, emulator)}, words...)
		}
		if out := output(t, words[0], words[1:]...); !line.MatchString(out) || !strings.HasSuffix(out, arch+"\n") {
			t.Errorf("%s: %s", arch, out)
		}
		if emulator != "" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program, "env", "--plain", "--socket", "/nowhere/s")
		cmd.Env = []string{"HOME=" + t.TempDir()}
		out, err := cmd.Output()
		if want := "LD_LIBRARY_PATH=" + filepath.Join(filepath.Dir(filepath.Dir(program)), "lib/goroce") + "\n"; err !=
			nil || !strings.Contains(string(out), want) {
			t.Errorf("%v\n%s, want %s", err, out, want)
		}
	}
}
