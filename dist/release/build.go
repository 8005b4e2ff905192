package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// program is a program of a module in this repository.
type program struct {
	name   string
	module string // folder
	pkg    string // folder in that
}

var (
	goroced = program{"goroced", ".", "./cmd/goroced"}
	plugin  = program{"goroced-device-plugin", "dist/kubernetes/plugin", "."}
)

// build builds a program for a processor, statically linked, and returns its path.
func (r *release) build(ctx context.Context, p program, arch string) (string, error) {
	path := filepath.Join(r.work, "programs", arch, p.name)
	// Variables of the caller that would change the program are set to their defaults.
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=",
		"GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off"}
	_, err := command(ctx, filepath.Join(r.dir, p.module), env, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags=-s -w", "-o", path, p.pkg)
	return path, err
}

// librariesLine is the line of `goroced env --plain` that names the directory of the C libraries.
var librariesLine = regexp.MustCompile(`(?m)^LD_LIBRARY_PATH=(.*)$`)

// libraries builds the C libraries with a compiler, as `goroced run` does, and returns their directory.
func (r *release) libraries(ctx context.Context, compiler string) (string, error) {
	host, err := r.build(ctx, goroced, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	env := []string{"CC=" + compiler + " -s", "GOROCE_LIB=", "XDG_CACHE_HOME=" + filepath.Join(r.work, "cache")}
	out, err := command(ctx, r.work, env, host, "env", "--plain", "--socket", filepath.Join(r.work, "none"))
	if err != nil {
		return "", err
	}
	m := librariesLine.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("goroced env does not name the libraries:\n%s", out)
	}
	return m[1], nil
}

// built returns what differs from processor to processor.
func (r *release) built(ctx context.Context, arch, compiler string) (tree, error) {
	t, err := r.installed(ctx, goroced, arch)
	if err != nil {
		return nil, err
	}
	libs, err := r.libraries(ctx, compiler)
	if err != nil {
		return nil, err
	}
	return t, t.readAll(libs, "lib/goroce", 0o644)
}

// installed returns a program for a processor with its licences, and writes its SBOM.
func (r *release) installed(ctx context.Context, p program, arch string) (tree, error) {
	path, err := r.build(ctx, p, arch)
	if err != nil {
		return nil, err
	}
	var t tree
	if err := t.read(path, "bin/"+p.name, 0o755); err != nil {
		return nil, err
	}
	info, err := r.info(path)
	if err != nil {
		return nil, err
	}
	bom, err := r.sbom(info)
	if err != nil {
		return nil, err
	}
	if err := r.write(fmt.Sprintf("%s_%s_linux_%s.cdx.json", p.name, r.number(), arch), bom); err != nil {
		return nil, err
	}
	notices, err := r.notices(ctx, p, info)
	t.add("share/doc/"+p.name+"/third-party-licences.txt", 0o644, notices)
	return t, err
}

// Where documents are.
const (
	doc      = "share/doc/goroced/"
	examples = doc + "examples"
)

// shipped are files of the repository, and folders, of which the files are taken but not the folders in them.
var shipped = []struct{ from, to string }{
	{"LICENSE", doc + "LICENSE"},
	{"dist/nftables", examples},
	{"dist/config", examples},
	{"dist/container", examples + "/container"},
	{"dist/grafana", examples + "/grafana"},
	{"dist/kubernetes", examples + "/kubernetes"},
	{"dist/kubernetes/example", examples + "/kubernetes/example"},
	{"dist/prometheus/prometheus.yml", examples + "/prometheus/prometheus.yml"},
	{"dist/prometheus/goroce.rules.yml", examples + "/prometheus/goroce.rules.yml"},
	{"dist/systemd/goroced.service.d", examples + "/goroced.service.d"},
	{"dist/systemd/goroced.service", "lib/systemd/system/goroced.service"},
	{"dist/systemd/goroced.socket", "lib/systemd/system/goroced.socket"},
	{"dist/systemd/goroced@.service", "lib/systemd/system/goroced@.service"},
	{"dist/systemd/goroced@.socket", "lib/systemd/system/goroced@.socket"},
	{"dist/systemd/goroce.sysusers", "lib/sysusers.d/goroce.conf"},
}

// completions are the shells, and where each looks for completions.
var completions = []struct{ shell, file string }{
	{"bash", "share/bash-completion/completions/goroced"},
	{"fish", "share/fish/vendor_completions.d/goroced.fish"},
	{"zsh", "share/zsh/site-functions/_goroced"},
}

// common returns what is the same for every processor.
func (r *release) common(ctx context.Context) (tree, error) {
	var t tree
	for _, s := range shipped {
		from := filepath.Join(r.dir, s.from)
		info, err := os.Stat(from)
		switch {
		case err != nil:
		case info.IsDir():
			err = t.readAll(from, s.to, 0o644)
		default:
			err = t.read(from, s.to, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	host, err := r.build(ctx, goroced, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	for _, c := range completions {
		script, err := command(ctx, r.work, nil, host, "completion", c.shell)
		if err != nil {
			return nil, err
		}
		t.add(c.file, 0o644, []byte(script+"\n"))
	}
	pages := filepath.Join(r.work, "man")
	if _, err := command(ctx, r.work, []string{r.epoch()}, host, "man", pages); err != nil {
		return nil, err
	}
	sections, err := os.ReadDir(pages)
	for _, s := range sections {
		err = errors.Join(err, t.readAll(filepath.Join(pages, s.Name()), "share/man/"+s.Name(), 0o644))
	}
	return t, err
}
