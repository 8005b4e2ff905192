package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// info returns what a program says it is built from. A module that is replaced by a folder is of this repository: it
// has the version of the release.
func (r *release) info(path string) (*debug.BuildInfo, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m.Version = r.version
		}
	}
	return info, nil
}

// sbom returns the list of what a program is built from, in CycloneDX: its module, those that it imports, and Go's
// standard library, all as the program itself says.
func (r *release) sbom(info *debug.BuildInfo) ([]byte, error) {
	main := component(&info.Main, cdx.ComponentTypeApplication)
	main.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS,
		URL: "https://github.com/goroce/goroce", Comment: "commit " + r.commit}}
	std := component(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")},
		cdx.ComponentTypeLibrary)
	list := []cdx.Component{std}
	for _, m := range info.Deps {
		list = append(list, component(m, cdx.ComponentTypeLibrary))
	}
	var refs []string
	for _, c := range list {
		refs = append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// component describes a module. Its checksum is that of go.sum.
func component(m *debug.Module, kind cdx.ComponentType) cdx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{BOMRef: url, PackageURL: url, Type: kind, Name: m.Path, Version: m.Version,
		Scope: cdx.ScopeRequired}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

// notices returns the licences of all that a program is built from, which have to go with it.
func (r *release) notices(ctx context.Context, p program, info *debug.BuildInfo) ([]byte, error) {
	dir := filepath.Join(r.dir, p.module)
	goroot, err := command(ctx, dir, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules, err := command(ctx, dir, []string{"GOFLAGS="}, "go", "list", "-m", "-json=Path,Dir", "all")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"Go": goroot}
	for d := json.NewDecoder(strings.NewReader(modules)); ; {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		dirs[m.Path] = m.Dir
	}
	var text bytes.Buffer
	for _, m := range append([]*debug.Module{{Path: "Go", Version: info.GoVersion}}, info.Deps...) {
		if err := notice(&text, m, dirs[m.Path]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// notice writes the licence of a module, whose source is in dir.
func notice(text *bytes.Buffer, m *debug.Module, dir string) error {
	var files []string
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	if dir == "" || len(files) == 0 {
		return fmt.Errorf("module %s has no licence in %q", m.Path, dir)
	}
	slices.Sort(files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "%s %s: %s\n\n%s\n\n%s\n\n", m.Path, m.Version, filepath.Base(f),
			strings.TrimSpace(string(data)), strings.Repeat("-", 79))
	}
	return nil
}
