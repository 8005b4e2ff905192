package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint      = "goroce.sock"  // ours, in the kubelet's folder
	kubeletSocket = "kubelet.sock" // the kubelet's
	registerLimit = 10 * time.Second
)

// registrar serves the kubelet, and registers with it. A kubelet that starts knows nothing of plugins, removes their
// sockets, and makes its own anew: then the registrar does all again.
type registrar struct {
	dir     string
	service *service
	log     *slog.Logger

	server *grpc.Server // nil: nothing is served
	ended  chan error   // of the server
	with   *os.File     // socket of the kubelet that the server is for; open, so no later one has its inode number
	last   string       // why it was not registered, "" if it was
}

// look registers, unless it has with the kubelet that runs.
func (r *registrar) look(ctx context.Context) {
	err := r.register(ctx)
	if ctx.Err() != nil {
		return
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != r.last {
		r.log.Warn("not registered with the kubelet", "err", err)
	}
	r.last = reason
}

func (r *registrar) register(ctx context.Context) error {
	path := filepath.Join(r.dir, kubeletSocket)
	// The endpoint first: a kubelet that starts removes it before it makes its own socket.
	_, gone := os.Lstat(filepath.Join(r.dir, endpoint))
	now, err := os.OpenFile(path, unix.O_PATH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no kubelet runs here, or it has another --root-dir", err)
	}
	if err != nil {
		return err
	}
	if gone == nil && r.server != nil && sameFile(now, r.with) {
		return now.Close()
	}
	err = r.close()
	if err == nil {
		err = r.serve()
	}
	if err != nil {
		return errors.Join(err, now.Close())
	}
	r.with = now
	if err := announce(ctx, path); err != nil {
		return errors.Join(err, r.close())
	}
	r.log.Info("registered with the kubelet", "resource", resource, "shares", r.service.shares.n)
	return nil
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// serve listens at the endpoint. A socket that a plugin before has left there is removed.
func (r *registrar) serve() error {
	path := filepath.Join(r.dir, endpoint)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	r.server, r.ended = grpc.NewServer(), make(chan error, 1)
	kubelet.RegisterDevicePluginServer(r.server, r.service)
	go func(s *grpc.Server, ended chan<- error) { ended <- s.Serve(l) }(r.server, r.ended)
	return nil
}

// announce tells the kubelet of the endpoint.
func announce(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = kubelet.NewRegistrationClient(conn).Register(ctx, &kubelet.RegisterRequest{Version: kubelet.Version,
		Endpoint: endpoint, ResourceName: resource})
	return err
}

// close ends the server, and the calls of the kubelet. The socket is removed.
func (r *registrar) close() error {
	if r.server == nil {
		return nil
	}
	r.server.Stop()
	err := <-r.ended
	r.server = nil
	if errors.Is(err, grpc.ErrServerStopped) { // before it began
		err = nil
	}
	return errors.Join(err, r.with.Close())
}
