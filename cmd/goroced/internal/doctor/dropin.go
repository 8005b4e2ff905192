package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// checkLibraries looks for the libraries by which programs in C use the daemon, or for what builds them.
func checkLibraries(e *env) []Finding {
	dir, err := e.libraries()
	if err == nil {
		return ok("those for programs in C are in " + dir)
	}
	if !errors.Is(err, dropin.ErrNotFound) {
		return []Finding{{Status: Warn, Text: err.Error(), Remedy: "name a directory that has them, or none:",
			Command: "unset " + dropin.Variable}}
	}
	cc, err := e.compiler()
	if err != nil {
		return []Finding{{Status: Warn, Text: "those for programs in C are not built, and there is no C compiler",
			Remedy: err.Error()}}
	}
	return ok(fmt.Sprintf("those for programs in C are not built yet; `goroced run` does that, with %s", cc))
}

// checkMemory registers memory of this process with the daemons that programs would find: programs in C have no other.
func checkMemory(e *env) []Finding {
	var found []Finding
	for _, path := range e.sockets(socket.Client) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), e.patience, errSilent)
		err := register(ctx, path)
		cancel()
		switch {
		case err == nil:
			found = append(found, Finding{Text: "the daemon at " + path + " reaches memory of this user's processes"})
		case errors.Is(err, errNotForUser):
			found = append(found, Finding{Status: Warn, Remedy: permission(path),
				Text: "whether the daemon at " + path + " reaches it is known only to who may connect there"})
		case errors.Is(err, abi.ErrPermission):
			found = append(found, Finding{Status: Warn, Text: fmt.Sprintf("%s: %v", path, err),
				Remedy: "programs in C cannot register memory there: set memory.own_processes, or " +
					"memory.other_processes if the daemon is another user's, to true in its configuration and " +
					"reload it (SIGHUP)"})
		case errors.Is(err, ib.ErrLimit) || errors.Is(err, ib.ErrInvalid):
			found = append(found, Finding{Status: Warn, Text: fmt.Sprintf("%s: %v", path, err),
				Remedy: "see what the daemon says of it in its log"})
		}
		// The check of daemons reports all other errors.
	}
	if len(found) == 0 {
		return ok("no daemon that could reach it")
	}
	return found
}

// errNotForUser says that this user may not connect to a daemon.
var errNotForUser = errors.New("the socket is not for this user")

// register registers a page of this process with the daemon at a socket, for a moment. The error is errNotForUser if
// this user may not connect there.
func register(ctx context.Context, path string) (err error) {
	dev, err := client.Dial(ctx, client.Options{Socket: path})
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", errNotForUser, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }() // and all that is in it
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	_, err = pd.RegMR(ib.MRInit{Buf: []byte(strings.Repeat("x", 4096)), Access: ib.LocalWrite})
	return err
}
