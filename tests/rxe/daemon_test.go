package rxe

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// nobody is the user and the group of whoever needs no privilege.
const nobody = 65534

// ourDaemon is a goroced of nobody in the host's namespace, which runs until the end of the row.
type ourDaemon struct {
	*pingpong
	socket, admin string
	dir           string // nobody's
}

// startDaemon starts a daemon, whose device has the row's address of the host.
func (p *pingpong) startDaemon(ctx context.Context) *ourDaemon {
	p.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(p.goroced), "daemon")
	p.must(err)
	p.Cleanup(func() { os.RemoveAll(dir) })
	d := &ourDaemon{pingpong: p, socket: filepath.Join(dir, "s"), admin: filepath.Join(dir, "a"), dir: dir}
	config := filepath.Join(dir, "config")
	p.must(os.WriteFile(config, nil, 0o600))
	p.must(os.Chown(dir, nobody, nobody))
	p.must(os.Chown(config, nobody, nobody))
	us := &ourProcess{t: p.TB, ready: make(chan struct{})}
	// The cleanup ends it by a signal, after all contexts of the test have ended.
	us.Cmd = p.lab.HostCommandAs(context.Background(), "nobody", p.goroced, "serve", "--config", config,
		"--socket", d.socket, "--admin", d.admin, "--link", p.link, "--addr", p.hostAddr().String(), "--set",
		"drain=1s")
	us.Stdout, us.Stderr = us, us
	p.must(us.Start())
	p.Cleanup(func() {
		if err := us.Process.Signal(os.Interrupt); err != nil {
			p.Errorf("end the daemon: %v", err)
		}
		if err := us.Wait(); err != nil {
			p.Errorf("the daemon: %v\n%s", err, us.output())
		}
	})
	us.waitReady(ctx)
	return d
}

// do runs a subcommand of goroced as nobody in the host's namespace.
func (d *ourDaemon) do(ctx context.Context, command string) {
	d.Helper()
	out, err := d.lab.HostCommandAs(ctx, "nobody", d.goroced, strings.Fields(command)...).CombinedOutput()
	if err != nil {
		d.Errorf("goroced %s: %v\n%s", command, err, out)
		return
	}
	d.Logf("goroced %s\n%s", command, out)
}
