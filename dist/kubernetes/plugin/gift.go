package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/goroce/goroce/roce/daemon/dropin"
)

// cdiDevice is the name of the CDI device. There is one: a container with several shares gets no more than with one.
const cdiDevice = resource + "=" + cdiName

const (
	cdiName    = "daemon"
	cdiVersion = "0.3.0"                // the oldest that has all that is used
	cdiFile    = "goroce.dev-rdma.json" // VENDOR-CLASS.json, as runtimes name their files
)

// gift is what a container gets. Folders of the node have the same paths in the container, and are read-only: a socket
// can be connected to all the same.
type gift struct {
	env    dropin.Environment
	useCDI bool
}

// folders returns what is mounted: the folder of the socket, so that a container finds the socket of the next daemon,
// too, and the one of the libraries.
func (g *gift) folders() []string { return []string{filepath.Dir(g.env.Socket), g.env.Libraries} }

// response tells the kubelet.
func (g *gift) response() *kubelet.ContainerAllocateResponse {
	if g.useCDI {
		return &kubelet.ContainerAllocateResponse{CdiDevices: []*kubelet.CDIDevice{{Name: cdiDevice}}}
	}
	r := &kubelet.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, v := range g.env.Variables() {
		r.Envs[v.Name] = v.Value
	}
	for _, dir := range g.folders() {
		r.Mounts = append(r.Mounts, &kubelet.Mount{HostPath: dir, ContainerPath: dir, ReadOnly: true})
	}
	return r
}

// spec tells container runtimes.
func (g *gift) spec() *cdi.Spec {
	edits := cdi.ContainerEdits{}
	for _, v := range g.env.Variables() {
		edits.Env = append(edits.Env, v.Name+"="+v.Value)
	}
	for _, dir := range g.folders() {
		edits.Mounts = append(edits.Mounts, &cdi.Mount{HostPath: dir, ContainerPath: dir,
			Options: []string{"rbind", "ro", "nosuid", "nodev"}})
	}
	return &cdi.Spec{Version: cdiVersion, Kind: resource,
		Devices: []cdi.Device{{Name: cdiName, ContainerEdits: edits}}}
}

func (g *gift) writeCDI(dir string) error {
	text, err := json.MarshalIndent(g.spec(), "", "  ")
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, cdiFile), append(text, '\n'))
}

// copyLibraries brings a folder up to date with another one. Programs that run go on with the libraries that they have.
func copyLibraries(from, to string) error {
	for _, name := range []string{dropin.Verbs, dropin.Sys} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(to, name), text); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file that everybody may read, and its folder. Whoever opens it finds the old or the new one whole. A
// file that is right already is left alone.
func replace(path string, text []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".goroce-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which fails once it has its own name
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
