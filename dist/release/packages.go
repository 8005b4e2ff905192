package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// formats are the packages, with the files that each has beside those of the archives.
var formats = []struct {
	name  string
	moved map[string]string // where files of the archive go instead; "" is nowhere
	more  []struct{ from, to string }
}{
	{"deb", map[string]string{
		doc + "LICENSE":                     "", // copyright refers to the one that Debian has
		"share/zsh/site-functions/_goroced": "share/zsh/vendor-completions/_goroced",
	}, []struct{ from, to string }{
		{"dist/debian/copyright", "/usr/" + doc + "copyright"},
		{"dist/debian/lintian-overrides", "/usr/share/lintian/overrides/goroced"},
	}},
	{"rpm", map[string]string{}, nil},
}

// units is where the packages have the units of systemd.
const units = "/usr/lib/systemd/system/"

// configured are for both formats: the system's daemons serve the programs of all users of group goroce.
var configured = []struct{ from, to, kind string }{
	{"dist/config/goroced.toml", "/etc/goroce/goroced.toml", files.TypeConfigNoReplace},
	{"dist/systemd/goroced.service.d/other-processes.conf.example",
		units + "goroced.service.d/other-processes.conf", files.TypeFile},
	{"dist/systemd/goroced.service.d/other-processes.conf.example",
		units + "goroced@.service.d/other-processes.conf", files.TypeFile},
}

// owned are the folders that belong to the package alone, and go with it, as do those of its documents.
var owned = []string{"/etc/goroce", "/usr/lib/goroce", units + "goroced.service.d", units + "goroced@.service.d"}

// packages writes the packages for a processor.
func (r *release) packages(arch string, t tree) error {
	glibc, err := newestGlibc(t)
	if err != nil {
		return err
	}
	dist := filepath.Join(r.dir, "dist")
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(dist, "nfpm.yaml"),
		func(name string) string {
			return map[string]string{"VERSION": r.version, "ARCH": arch, "GLIBC": glibc}[name]
		})
	if err != nil {
		return err
	}
	for _, f := range formats {
		info, err := config.Get(f.name)
		if err != nil {
			return err
		}
		for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
			*script = filepath.Join(dist, *script)
		}
		stage := filepath.Join(r.work, "stage", arch, f.name)
		if info.Contents, err = r.contents(t, f.moved, stage); err != nil {
			return err
		}
		for _, m := range f.more {
			info.Contents = append(info.Contents, r.content(filepath.Join(r.dir, m.from), m.to, 0o644))
		}
		info.MTime = r.date
		if f.name == "deb" {
			info.Contents = append(info.Contents, r.content(filepath.Join(stage, "changelog"),
				"/usr/"+doc+"changelog.Debian.gz", 0o644))
		}
		if err := r.pack(f.name, nfpm.WithDefaults(info), stage); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// contents writes the files where a packager reads them, and lists them.
func (r *release) contents(t tree, moved map[string]string, stage string) (files.Contents, error) {
	var list files.Contents
	for _, f := range t {
		name, ok := moved[f.name]
		if !ok {
			name = f.name
		}
		if name == "" {
			continue
		}
		if strings.HasPrefix(name, "share/man/") {
			name, f.data = name+".gz", packed(f.data)
		}
		from := filepath.Join(stage, "usr", name)
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(from, f.data, 0o644); err != nil {
			return nil, err
		}
		list = append(list, r.content(from, "/usr/"+name, os.FileMode(f.mode)))
	}
	dirs := slices.Clone(owned)
	for _, dir := range t.folders() {
		if strings.HasPrefix(dir+"/", doc) {
			dirs = append(dirs, "/usr/"+dir)
		}
	}
	for _, dir := range dirs {
		one := r.content("", dir, 0o755)
		one.Type = files.TypeDir
		list = append(list, one)
	}
	for _, c := range configured {
		one := r.content(filepath.Join(r.dir, c.from), c.to, 0o644)
		one.Type = c.kind
		list = append(list, one)
	}
	return list, nil
}

func (r *release) content(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, Type: files.TypeFile,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}}
}

// pack writes a package.
func (r *release) pack(format string, info *nfpm.Info, stage string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	name := packager.ConventionalFileName(info)
	if format == "deb" {
		if err := os.WriteFile(filepath.Join(stage, "changelog"), r.changelog(info), 0o644); err != nil {
			return err
		}
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(path.Base(name), out.Bytes())
}

// changelog returns what Debian wants to see of a version. What is new is in CHANGELOG.md.
func (r *release) changelog(info *nfpm.Info) []byte {
	version := info.Version
	if info.Prerelease != "" {
		version += "~" + info.Prerelease
	}
	return packed(fmt.Appendf(nil, "%s (%s-%s) unstable; urgency=medium\n\n  * %s, commit %s. What is new:\n    %s\n\n"+
		" -- %s  %s\n", info.Name, version, info.Release, r.version, r.commit[:12],
		"https://github.com/goroce/goroce/blob/main/CHANGELOG.md", info.Maintainer, r.date.Format(time.RFC1123Z)))
}

// packed returns data as gzip -9n has it.
func packed(data []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is good, and a buffer takes everything
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// newestGlibc returns the version of glibc that the C libraries need.
func newestGlibc(t tree) (string, error) {
	newest := [2]int{}
	for _, f := range t {
		if path.Dir(f.name) != "lib/goroce" {
			continue
		}
		lib, err := elf.NewFile(bytes.NewReader(f.data))
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		symbols, err := lib.ImportedSymbols()
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		for _, s := range symbols {
			var v [2]int
			if n, _ := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &v[0], &v[1]); n == 2 &&
				(v[0] > newest[0] || v[0] == newest[0] && v[1] > newest[1]) {
				newest = v
			}
		}
	}
	if newest[0] == 0 {
		return "", fmt.Errorf("no library in lib/goroce says which glibc it needs")
	}
	return fmt.Sprintf("%d.%d", newest[0], newest[1]), nil
}
