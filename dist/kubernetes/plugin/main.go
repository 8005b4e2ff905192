// Goroced-device-plugin offers the daemon of a Kubernetes node to the containers of its pods, as a device plugin of the
// kubelet. A container that asks for goroce.dev/rdma gets the folder of the daemon's socket, the libraries for programs
// in C, and the variables that lead to both, so that an unmodified program uses verbs.
//
//	go build -C dist/kubernetes/plugin -o goroced-device-plugin
//
// A device of the kubelet is a share: a container that has one may use the daemon as others do. All shares are healthy
// while the daemon answers.
//
// The protocol is v1beta1 of k8s.io/kubelet. The same is described for container runtimes, in a file of the Container
// Device Interface (CDI). The program is a module of its own, for its dependencies.
//
// Exit codes: 0 is the end by SIGINT or SIGTERM, 1 failure, 2 an invalid command line.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

const description = "Offer the daemon of a Kubernetes node to its pods. Containers of pods that ask for " + resource +
	" get the daemon's socket, the libraries of `goroced run`, and its variables: unmodified programs that use " +
	"libibverbs see the device. It runs beside `goroced serve`, as root, with the node's folders at the same paths. " +
	"See docs/kubernetes.md."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	o := options{Interval: time.Second, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	// There is one socket for the node, not for a user.
	path := cmp.Or(os.Getenv(socket.ClientVariable), socket.Default(0, os.Getenv).Client)
	info, _ := debug.ReadBuildInfo() // which the go command gives every program
	parser := kong.Must(&o, kong.Name("goroced-device-plugin"), kong.Description(description),
		kong.Vars{"socket": path, "version": "goroced-device-plugin " + info.Main.Version})
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		exit(2, fmt.Errorf("%w; see `goroced-device-plugin --help`", err))
	}
	var err error
	if o.Libraries, err = dropin.Libraries(ctx); err == nil {
		err = serve(ctx, o)
	}
	if err != nil {
		exit(1, err)
	}
}

// exit prints an error on one line and ends the program.
func exit(code int, err error) {
	fmt.Fprintf(os.Stderr, "goroced-device-plugin: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(code)
}
