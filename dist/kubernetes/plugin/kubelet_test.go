package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// patience bounds the waits for what must happen.
const patience = 2 * time.Minute

// fakeKubelet plays the kubelet for a plugin, by the gRPC that both speak. It registers plugins, connects to them,
// watches their devices and allocates them.
type fakeKubelet struct {
	api.UnimplementedRegistrationServer
	dir      string
	server   *grpc.Server
	ended    chan error
	requests chan *api.RegisterRequest
	refuse   func() error
}

// startKubelet starts a kubelet in the folder of its sockets. As the real one, it removes those of plugins first. It
// refuses plugins while refuse, if it is not nil, returns an error.
func startKubelet(t testing.TB, dir string, refuse func() error) *fakeKubelet {
	t.Helper()
	old, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range old {
		if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKubelet{dir: dir, server: grpc.NewServer(), ended: make(chan error, 1),
		requests: make(chan *api.RegisterRequest, 16), refuse: refuse}
	api.RegisterRegistrationServer(k.server, k)
	go func() { k.ended <- k.server.Serve(l) }()
	t.Cleanup(k.stop)
	return k
}

// stop ends the kubelet, and removes its socket.
func (k *fakeKubelet) stop() { k.server.Stop() }

// resourceName is what names of extended resources are like: a domain that is not Kubernetes' own, and a name.
var resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/` +
	`[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?$`)

// Register is what a plugin calls. The checks are the kubelet's.
func (k *fakeKubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	if k.refuse != nil {
		if err := k.refuse(); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(api.SupportedVersions[:], r.Version) {
		return nil, status.Errorf(codes.InvalidArgument, "version %q", r.Version)
	}
	if !resourceName.MatchString(r.ResourceName) {
		return nil, status.Errorf(codes.InvalidArgument, "resource %q", r.ResourceName)
	}
	k.requests <- r
	return &api.Empty{}, nil
}

// registered is a plugin that has registered.
type registered struct {
	api.DevicePluginClient
	request *api.RegisterRequest
	lists   chan []*api.Device // closed when the plugin has ended the call
}

// plugin waits until a plugin registers, connects to it, and watches its devices.
func (k *fakeKubelet) plugin(t testing.TB) *registered {
	t.Helper()
	p := &registered{lists: make(chan []*api.Device, 64)}
	select {
	case p.request = <-k.requests:
	case <-time.After(patience):
		t.Fatalf("no plugin has registered within %v", patience)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, p.request.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.DevicePluginClient = api.NewDevicePluginClient(conn)
	if _, err := p.GetDevicePluginOptions(t.Context(), &api.Empty{}); err != nil {
		t.Fatal(err)
	}
	stream, err := p.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lists)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			p.lists <- r.Devices
		}
	}()
	return p
}

// await waits for a list of n devices, all of them of this health, and returns their names.
func (p *registered) await(t testing.TB, n int, health string) (ids []string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case list, ok := <-p.lists:
			if !ok {
				t.Fatal("the plugin has ended the call")
			}
			ids = nil
			for _, d := range list {
				if d.Health == health {
					ids = append(ids, d.ID)
				}
			}
			if len(list) == n && len(ids) == n {
				return ids
			}
		case <-limit:
			t.Fatalf("no list of %d devices that are %s within %v", n, health, patience)
		}
	}
}

// awaitEnd waits until the plugin has ended the call.
func (p *registered) awaitEnd(t testing.TB) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case _, ok := <-p.lists:
			if !ok {
				return
			}
		case <-limit:
			t.Fatalf("the plugin has not ended the call within %v", patience)
		}
	}
}

// allocate allocates devices for one container.
func (p *registered) allocate(ctx context.Context, ids ...string) (*api.ContainerAllocateResponse, error) {
	r, err := p.DevicePluginClient.Allocate(ctx, &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.ContainerResponses) != 1 {
		return nil, status.Errorf(codes.Internal, "%d answers for one container", len(r.ContainerResponses))
	}
	return r.ContainerResponses[0], nil
}
