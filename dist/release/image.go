package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is whom the daemon runs as in a container. It has no name, as there is no /etc/passwd.
const user = 65532

// image writes one image for all processors, from scratch, as an archive of an OCI layout, which podman, skopeo and
// Docker (from 25 on) load. It has the program, the C libraries for other containers, and the device plugin.
func (r *release) image(ctx context.Context, trees map[string]tree) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		img, err := r.imageFor(ctx, arch.name, trees[arch.name])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch.name}}})
	}
	dir := filepath.Join(r.work, "oci")
	oci, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": "goroced:" + r.number(), // podman
		"io.containerd.image.name": "localhost/goroced:" + r.number()} // Docker
	if err := oci.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	var t tree
	for _, folder := range []string{".", "blobs/sha256"} {
		if err := t.readAll(filepath.Join(dir, folder), folder, 0o644); err != nil {
			return err
		}
	}
	t.sort()
	var out bytes.Buffer
	if err := t.writeTar(&out, "", r.date); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("goroced_%s_image.oci.tar", r.number()), out.Bytes())
}

// imageFor returns the image for a processor.
func (r *release) imageFor(ctx context.Context, arch string, t tree) (v1.Image, error) {
	files, err := r.installed(ctx, plugin, arch)
	if err != nil {
		return nil, err
	}
	for _, f := range t {
		for _, prefix := range []string{"bin/", "lib/goroce/", doc + "LICENSE", doc + "third-party"} {
			if strings.HasPrefix(f.name, prefix) {
				files = append(files, f)
			}
		}
	}
	files.sort()
	var program, sockets bytes.Buffer
	if err := files.writeTar(&program, "usr", r.date); err != nil {
		return nil, err
	}
	w := tar.NewWriter(&sockets)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "run/goroce/", Mode: 0o755, Uid: user, Gid: user,
		ModTime: r.date, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range [][]byte{program.Bytes(), sockets.Bytes()} {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(layer)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		history := v1.History{CreatedBy: "dist/release", Created: v1.Time{Time: r.date}}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: history}); err != nil {
			return nil, err
		}
	}
	return r.configured(img, arch)
}

// configured says what a container of an image runs, and how.
func (r *release) configured(img v1.Image, arch string) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/bin/goroced"},
		Cmd:        []string{"serve"},
		StopSignal: "SIGTERM",
		Volumes:    map[string]struct{}{"/run/goroce": {}},
		Env: []string{"PATH=/usr/bin", "GOROCED_SOCKET=/run/goroce/goroced.sock",
			"GOROCED_ADMIN=/run/goroce/goroced-admin.sock", "GOROCED_LOG_FORMAT=json", "XDG_CONFIG_HOME=/etc"},
		Labels: map[string]string{"org.opencontainers.image.source": "https://github.com/goroce/goroce",
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0"},
	}
	return mutate.ConfigFile(img, config)
}
