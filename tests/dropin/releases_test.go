//go:build linux

package dropin

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
)

// newest is the release of rdma-core whose interface the library has.
const newest = 65

// release is a libibverbs with which ours is compared.
type release struct {
	version string   // of rdma-core; "" is the machine's own
	flags   []string // that lead the compiler to its headers
	library string
}

// distributions are the releases of Debian and Ubuntu that releases.sh unpacks, by architecture. Ubuntu's are 24.04,
// 26.04 and what comes next; its mirror has arm64 of 26.04 only.
var distributions = map[string][]string{
	"amd64": {"bookworm", "trixie", "testing", "noble", "resolute", "devel"},
	"arm64": {"bookworm", "trixie", "testing", "resolute"},
}

// crossCompiler is for arm64.
const crossCompiler = "aarch64-linux-gnu-gcc"

// compilers are by the architectures that releases are for.
func compilers(arch string) string {
	if arch == "arm64" {
		return crossCompiler
	}
	return "cc"
}

// releases calls f with each release: this machine's, and those that releases.sh has unpacked for an architecture.
func releases(t *testing.T, arch string, f func(t *testing.T, r release)) {
	if arch == "amd64" {
		t.Run("this machine", func(t *testing.T) {
			needVerbs(t)
			found, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1")
			if len(found) == 0 {
				require.Missing(t, "libibverbs.so.1 of package libibverbs1 is not installed")
			}
			f(t, release{library: found[0]})
		})
	}
	cache := os.Getenv("GOROCE_LAB_CACHE")
	if cache == "" {
		cache = "/var/cache/goroce-lab"
	}
	for _, suite := range distributions[arch] {
		t.Run(suite+"-"+arch, func(t *testing.T) {
			require.Command(t, compilers(arch))
			dir := filepath.Join(cache, "libibverbs", suite+"-"+arch)
			version, err := os.ReadFile(filepath.Join(dir, "version"))
			if why, asked := os.ReadFile(dir + ".missing"); err != nil && asked == nil {
				t.Skipf("skipped: needs a mirror with %s-%s: %s", suite, arch, why)
			}
			if err != nil {
				require.Missing(t, "%s, which .ci/packages unpacks, cannot be read: %v", dir, err)
			}
			f(t, release{version: strings.TrimSpace(string(version)), library: filepath.Join(dir, "libibverbs.so.1"),
				flags: []string{"-I" + filepath.Join(dir, "include")}})
		})
	}
}

// differs reports differences: errors, unless the release is newer than all that we know.
func (r *release) differs(t *testing.T, differ []string) {
	t.Helper()
	if len(differ) == 0 {
		return
	}
	text := strings.Join(differ, "\n")
	major, _, _ := strings.Cut(r.version, ".")
	if n, _ := strconv.Atoi(major); n > newest {
		t.Skipf("skipped: needs an rdma-core of at most %d, whose interface the library has; %s has\n%s", newest,
			r.version, text)
	}
	t.Errorf("libibverbs %s:\n%s", r.version, text)
}

// TestVerbsLayout: our declarations lay objects out, and number constants, as each release does.
func TestVerbsLayout(t *testing.T) {
	header, err := filepath.Abs(sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		releases(t, arch, func(t *testing.T, r release) {
			ours := declared(t, compilers(arch), "ibv.h", "-I"+header)
			theirs := declared(t, compilers(arch), "infiniband/verbs.h", r.flags...)
			differ, structs, fields, values := compare(ours, theirs)
			r.differs(t, differ)
			t.Logf("%d structs, %d fields, %d constants of %s", structs, fields, values, r.version)
			if structs < 50 || fields < 400 || values < 100 {
				t.Errorf("only %d structs, %d fields and %d constants were compared, want at least 50, 400 and 100",
					structs, fields, values)
			}
		})
	}
}

// exported returns the names that a library defines, as nm prints them: name@@VERSION is what a linker takes,
// name@VERSION what only programs of old have. Each has the type of the symbol.
func exported(t testing.TB, library string) map[string]elf.SymType {
	t.Helper()
	file, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]elf.SymType{}
	for _, s := range symbols {
		if s.Name == "" || s.Section == elf.SHN_UNDEF || s.Section == elf.SHN_ABS || !s.HasVersion {
			continue
		}
		at := "@@"
		if s.VersionIndex.IsHidden() {
			at = "@"
		}
		names[s.Name+at+s.Version] = elf.ST_TYPE(s.Info)
	}
	return names
}

// private matches the symbol versions that libibverbs has for its providers. Ours have a default of their own.
var private = regexp.MustCompile(`@@?(IBVERBS_PRIVATE_)`)

func normal(names map[string]elf.SymType) map[string]elf.SymType {
	m := map[string]elf.SymType{}
	for name, typ := range names {
		m[private.ReplaceAllString(name, "@$1")] = typ
	}
	return m
}

// compareSymbols says what a library has not as another one has it, or has more in versions that both have.
func compareSymbols(ours, theirs map[string]elf.SymType) (differ []string, n int) {
	ours, theirs = normal(ours), normal(theirs)
	versions := map[string]bool{}
	for name, typ := range theirs {
		_, version, _ := strings.Cut(name, "@")
		versions[strings.TrimPrefix(version, "@")] = true
		if got, ok := ours[name]; !ok {
			differ = append(differ, "no "+name)
		} else if got != typ {
			differ = append(differ, fmt.Sprintf("%s is a %v, want %v", name, got, typ))
		}
		n++
	}
	for name := range ours {
		_, version, _ := strings.Cut(name, "@")
		version = strings.TrimPrefix(version, "@")
		if _, ok := theirs[name]; !ok && versions[version] && !strings.HasPrefix(version, "IBVERBS_PRIVATE_") {
			differ = append(differ, name+" is not in theirs")
		}
	}
	return differ, n
}

// forArm64 builds the libraries for arm64.
func forArm64(t *testing.T) string {
	t.Helper()
	require.Command(t, crossCompiler)
	t.Setenv("CC", crossCompiler+" -Werror")
	dir, err := dropin.Build(context.Background(), filepath.Join(work, "arm64"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestVerbsSymbols: every name of each release is there, with its version, and no other in a version of theirs.
func TestVerbsSymbols(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		var dir string
		if arch == "amd64" {
			dir = libs(t)
		} else {
			t.Run(arch, func(t *testing.T) {
				repeats(t, true)
				dir = forArm64(t)
			})
			if dir == "" {
				continue
			}
		}
		ours := exported(t, filepath.Join(dir, dropin.Verbs))
		known := regexp.MustCompile(`@@?IBVERBS_(1\.\d+|PRIVATE_\d+)$`)
		for name := range ours {
			if !known.MatchString(name) {
				t.Errorf("%s has no version of libibverbs", name)
			}
		}
		releases(t, arch, func(t *testing.T, r release) {
			theirs := exported(t, r.library)
			differ, n := compareSymbols(ours, theirs)
			r.differs(t, differ)
			t.Logf("%d symbols of %s", n, r.version)
			if n < 150 {
				t.Errorf("only %d symbols were compared, want at least 150", n)
			}
		})
	}
}

// TestVerbsPrivate: the private names have the versions of releases that distributions do not have any more, too.
func TestVerbsPrivate(t *testing.T) {
	ours := normal(exported(t, filepath.Join(libs(t), dropin.Verbs)))
	for _, version := range []string{"22", "25", "34", "57", "59", "64", "65"} {
		for _, name := range []string{"verbs_register_driver_" + version, "ibv_cmd_alloc_pd"} {
			if _, ok := ours[name+"@IBVERBS_PRIVATE_"+version]; !ok {
				t.Errorf("no %s of version %s", name, version)
			}
		}
	}
}
