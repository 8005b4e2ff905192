package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
)

// onNode returns the options of a plugin on a node whose files are all in one folder. The libraries are none, but have
// their names.
func onNode(t *testing.T) options {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := options{Socket: filepath.Join(dir, "run/s"), Shares: 3, Libraries: filepath.Join(dir, "image"),
		LibDir: filepath.Join(dir, "lib"), KubeletDir: filepath.Join(dir, "plugins"), CDIDir: filepath.Join(dir, "cdi"),
		Interval: 2 * time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, d := range []string{filepath.Dir(o.Socket), o.Libraries, o.KubeletDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dropin.Verbs, dropin.Sys} {
		write(t, filepath.Join(o.Libraries, name), name+" 1")
	}
	return o
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the plugin until the end of the test, or until stop is called.
func run(t *testing.T, o options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, o) }()
	stop = func() {
		if ctx.Err() == nil {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// daemon serves a device at a socket until the end of the test, or until stop is called.
func daemon(t *testing.T, path string) (stop func()) {
	t.Helper()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}, Device: roce.Options{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New([]roce.Device{dev}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	stop = func() {
		if ctx.Err() == nil {
			cancel()
			if err := errors.Join(<-served, dev.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestHealth: shares are healthy while there is a daemon that answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	run(t, o)
	plugin := startKubelet(t, o.KubeletDir, nil).plugin(t)
	plugin.await(t, 3, api.Unhealthy)
	stop := daemon(t, o.Socket)
	ids := plugin.await(t, 3, api.Healthy)
	if slices.Sort(ids); !slices.Equal(ids, []string{"share-0", "share-1", "share-2"}) {
		t.Errorf("shares %q, want %q", ids, []string{"share-0", "share-1", "share-2"})
	}
	stop()
	plugin.await(t, 3, api.Unhealthy)
	daemon(t, o.Socket)
	plugin.await(t, 3, api.Healthy)
}

// TestHang: a daemon that accepts and says nothing is none.
func TestHang(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := prober{socket: o.Socket, limit: time.Millisecond, shares: newShares(1), log: o.Log}
	p.shares.set(true)
	p.look(t.Context())
	list, _ := p.shares.list()
	if list.Devices[0].Health != api.Unhealthy || !strings.Contains(p.last, "not within 1ms") {
		t.Errorf("%v: %s, want %v: not within 1ms", list.Devices, p.last, api.Unhealthy)
	}
}

// TestOneConnection: however often the daemon is asked, it has one client.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	daemon(t, o.Socket)
	p := prober{socket: o.Socket, limit: time.Minute, shares: newShares(1), log: o.Log}
	p.look(t.Context())
	first := p.conn
	p.look(t.Context())
	if p.last != "" || first == nil || p.conn != first {
		t.Errorf("connections %p, %p: %s, want one, and no complaint", first, p.conn, p.last)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestKubeletRestarts: a plugin waits for the kubelet, registers with each that comes, and leaves no socket.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	stop := run(t, o)
	for range 3 {
		k := startKubelet(t, o.KubeletDir, nil)
		plugin := k.plugin(t)
		if r := plugin.request; r.ResourceName != "goroce.dev/rdma" || r.Version != "v1beta1" {
			t.Errorf("registered %v, want goroce.dev/rdma of v1beta1", r)
		}
		plugin.await(t, 3, api.Unhealthy)
		k.stop()
	}
	plugin := startKubelet(t, o.KubeletDir, nil).plugin(t)
	stop()
	plugin.awaitEnd(t)
	if _, err := os.Lstat(filepath.Join(o.KubeletDir, plugin.request.Endpoint)); !os.IsNotExist(err) {
		t.Errorf("the endpoint is left: %v, want it not to exist", err)
	}
}

// TestKubeletRemovesSocket: a plugin whose socket is removed registers again.
func TestKubeletRemovesSocket(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	k := startKubelet(t, o.KubeletDir, nil)
	run(t, o)
	first := k.plugin(t)
	first.await(t, 3, api.Unhealthy)
	if err := os.Remove(filepath.Join(o.KubeletDir, first.request.Endpoint)); err != nil {
		t.Fatal(err)
	}
	k.plugin(t).await(t, 3, api.Unhealthy)
}

// TestKubeletAnew: a kubelet that has left the plugin's socket in place does not know the plugin either.
func TestKubeletAnew(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	r := registrar{dir: o.KubeletDir, service: &service{shares: newShares(1)}, log: o.Log}
	k := startKubelet(t, o.KubeletDir, nil)
	r.look(t.Context())
	ours := filepath.Join(o.KubeletDir, k.plugin(t).request.Endpoint)
	k.stop()
	aside := filepath.Join(o.Libraries, "aside")
	if err := os.Rename(ours, aside); err != nil {
		t.Fatal(err)
	}
	k = startKubelet(t, o.KubeletDir, nil)
	if err := os.Rename(aside, ours); err != nil {
		t.Fatal(err)
	}
	r.look(t.Context())
	k.plugin(t).await(t, 1, api.Unhealthy)
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestKubeletRefuses: a plugin that is refused tries again.
func TestKubeletRefuses(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	var asked atomic.Int32
	k := startKubelet(t, o.KubeletDir, func() error {
		if asked.Add(1) < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	})
	run(t, o)
	k.plugin(t).await(t, 3, api.Unhealthy)
}

// variables are those of `goroced env`.
func (o *options) variables() map[string]string {
	return map[string]string{"GOROCED_SOCKET": o.Socket, "LD_LIBRARY_PATH": o.LibDir,
		"LD_PRELOAD": filepath.Join(o.LibDir, dropin.Sys)}
}

// TestAllocate: a container gets the folders, read-only and at the same paths, and the variables. Shares that are not
// there cannot be had.
func TestAllocate(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	run(t, o)
	plugin := startKubelet(t, o.KubeletDir, nil).plugin(t)
	r, err := plugin.allocate(t.Context(), "share-0", "share-2")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(r.Envs, o.variables()) {
		t.Errorf("variables %v, want %v", r.Envs, o.variables())
	}
	var mounts []string
	for _, m := range r.Mounts {
		if mounts = append(mounts, m.HostPath); m.ContainerPath != m.HostPath || !m.ReadOnly {
			t.Errorf("mount %v, want the same path, read-only", m)
		}
	}
	if !slices.Equal(mounts, []string{filepath.Dir(o.Socket), o.LibDir}) || len(r.CdiDevices) != 0 {
		t.Errorf("mounts %q, CDI devices %v; want %q and none", mounts, r.CdiDevices,
			[]string{filepath.Dir(o.Socket), o.LibDir})
	}
	for _, bad := range []string{"share-3", "share--1", "share-01", "share-+1", "1", "", strings.Repeat("9", 1000)} {
		if _, err := plugin.allocate(t.Context(), "share-0", bad); status.Code(err) != codes.NotFound ||
			!strings.Contains(err.Error(), "the last one is share-2") {
			t.Errorf("%.20q: %v; want %v and %q", bad, err, codes.NotFound, "the last one is share-2")
		}
	}
}

// TestCDI: the CDI library takes the file for valid, knows the device that the kubelet is told, and edits a container
// as Allocate would otherwise.
func TestCDI(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	o.Inject = "cdi"
	run(t, o)
	plugin := startKubelet(t, o.KubeletDir, nil).plugin(t)
	r, err := plugin.allocate(t.Context(), "share-1")
	if err != nil || len(r.CdiDevices) != 1 || len(r.Envs)+len(r.Mounts) != 0 {
		t.Fatalf("%v, %v; want a CDI device only", r, err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(o.CDIDir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	spec := cache.GetVendorSpecs("goroce.dev")[0]
	if least, err := specs.MinimumRequiredVersion(spec.Spec); err != nil || spec.Version != least {
		t.Errorf("version %s, want the least, %s: %v", spec.Version, least, err)
	}
	if want := cdi.GenerateSpecName("goroce.dev", "rdma") + ".json"; filepath.Base(spec.GetPath()) != want {
		t.Errorf("file %s, want %s", spec.GetPath(), want)
	}
	container := &oci.Spec{}
	if _, err := cache.InjectDevices(container, r.CdiDevices[0].Name); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range container.Process.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if !maps.Equal(env, o.variables()) {
		t.Errorf("variables %v, want %v", env, o.variables())
	}
	var mounts []string
	for _, m := range container.Mounts {
		if mounts = append(mounts, m.Source); m.Destination != m.Source || !slices.Contains(m.Options, "ro") {
			t.Errorf("mount %v, want the same path, read-only", m)
		}
	}
	if slices.Sort(mounts); !slices.Equal(mounts, []string{o.LibDir, filepath.Dir(o.Socket)}) {
		t.Errorf("mounts %q, want %q", mounts, []string{o.LibDir, filepath.Dir(o.Socket)})
	}
}

// TestUpgrade: libraries of another version take the place of the old ones. A program that has these mapped keeps them.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	o := onNode(t)
	if err := copyLibraries(o.Libraries, o.LibDir); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(o.LibDir, dropin.Verbs))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	write(t, filepath.Join(o.Libraries, dropin.Verbs), "new")
	if err := copyLibraries(o.Libraries, o.LibDir); err != nil {
		t.Fatal(err)
	}
	old, err := io.ReadAll(open)
	if string(old) != dropin.Verbs+" 1" || err != nil {
		t.Errorf("the old file has %q, %v; want %q", old, err, dropin.Verbs+" 1")
	}
	for name, want := range map[string]string{dropin.Verbs: "new", dropin.Sys: dropin.Sys + " 1"} {
		path := filepath.Join(o.LibDir, name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); string(text) != want || err != nil || info.Mode() != 0o644 {
			t.Errorf("%s has %q, %v, %v; want %q of mode 0644", name, text, info.Mode(), err, want)
		}
	}
	if left, err := os.ReadDir(o.LibDir); len(left) != 2 || err != nil {
		t.Errorf("%v, %v; want 2", left, err)
	}
}

// TestErrors: what cannot work is refused at the start.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*options)
		invalid bool // of the options
		want    string
	}{
		{"no share", func(o *options) { o.Shares = 0 }, true, `shares is "0": not allowed; allowed: 1 to 10000`},
		{"many shares", func(o *options) { o.Shares = 10001 }, true, "10001"},
		{"no socket", func(o *options) { o.Socket = "" }, true, "the socket"},
		{"a relative socket", func(o *options) { o.Socket = "run/goroced.sock" }, true, "an absolute path"},
		{"a socket in the root", func(o *options) { o.Socket = "/goroced.sock" }, true, "not directly below /"},
		{"no folder", func(o *options) { o.LibDir = "" }, true, "the folder for libraries"},
		{"CDI without a file", func(o *options) { o.CDIDir, o.Inject = "", "cdi" }, true, "CDI"},
		{"no library", func(o *options) { o.Libraries = o.KubeletDir }, false, "libraries for containers: open"},
		{"no place for CDI", func(o *options) { o.CDIDir = filepath.Join(o.Libraries, dropin.Sys) }, false, "CDI file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := onNode(t)
			c.change(&o)
			err := serve(t.Context(), o)
			if err == nil || errors.Is(err, ib.ErrInvalid) != c.invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
