//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/host"
)

// configCmd is `goroced config`.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check a configuration file."`
	Init  configInitCmd  `cmd:"" help:"Write a configuration file with all settings, as comments."`
	Show  configShowCmd  `cmd:"" help:"Print the configuration that serve would run with, and where each value comes from."`
}

// configCheckCmd is `goroced config check`.
type configCheckCmd struct {
	File string `arg:"" optional:"" help:"Which file; without it the configuration that serve would run with, environment and all."`
}

// Run runs the subcommand. It prints a line on standard output for each error in the configuration, and for each thing
// that the configuration names and the machine does not have.
func (c *configCheckCmd) Run(a *app) error {
	sources := config.Process("", nil)
	if c.File != "" { // as root's daemon would read it
		sources = config.Sources{File: c.File}
	}
	what := sources.String()
	loaded, errs := config.Examine(sources)
	missing, err := missingDevices(loaded)
	if err != nil {
		return err
	}
	if errs = append(errs, missing...); len(errs) == 0 {
		_, err := fmt.Fprintf(a.out, "%s is good\n", what)
		return err
	}
	if first := (*config.Error)(nil); len(errs) == 1 && !errors.As(errs[0], &first) {
		return errs[0] // the file cannot be read
	}
	for _, e := range errs {
		if _, err := fmt.Fprintln(a.out, strings.ReplaceAll(e.Error(), "\n", "; ")); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is not good: %w", what, ib.ErrInvalid)
}

// missingDevices returns an error for each interface and address of the devices that this machine does not have.
func missingDevices(c *config.Config) (errs []error, err error) {
	list, err := host.Interfaces()
	if err != nil {
		return nil, err
	}
	var names, addrs []string
	for _, f := range list {
		names = append(names, f.Name)
		for _, a := range f.Addrs {
			addrs = append(addrs, a.String())
		}
	}
	for i, d := range c.Devices {
		if d.NetIf != "" && !slices.Contains(names, d.NetIf) {
			allowed := "an interface with an address: " + strings.Join(names, ", ")
			errs = append(errs, c.Missing(i, "netif", d.NetIf, allowed))
		}
		for _, a := range d.Addresses {
			if !a.IsLoopback() && !slices.Contains(addrs, a.String()) {
				errs = append(errs, c.Missing(i, "addresses", a.String(), strings.Join(addrs, ", ")))
			}
		}
	}
	return errs, nil
}

// configInitCmd is `goroced config init`.
type configInitCmd struct {
	File  string `arg:"" optional:"" type:"path" help:"File to write, with its directory if that is not there (default: standard output)."`
	Force bool   `help:"Replace a file that is there."`
}

// Help is printed under the flags.
func (*configInitCmd) Help() string {
	return "The file sets nothing: each setting is a comment, with its meaning and its default on this machine."
}

// Run runs the subcommand.
func (c *configInitCmd) Run(a *app) error {
	var text bytes.Buffer
	if err := config.WriteTemplate(&text, config.Sources{UID: os.Geteuid(), Environ: os.Environ()}); err != nil {
		return err
	}
	if c.File == "" {
		_, err := a.out.Write(text.Bytes())
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
		return fmt.Errorf("config init: %w", err)
	}
	mode := os.O_EXCL
	if c.Force {
		mode = os.O_TRUNC
	}
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("config init: %s is there already; --force replaces it: %w", c.File, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("config init: %w", err)
	}
	_, err = f.Write(text.Bytes())
	return errors.Join(err, f.Close())
}

// configShowCmd is `goroced config show`.
type configShowCmd struct {
	JSON bool `help:"Print a list of keys, values and origins as JSON."`
	settingFlags
}

// Run runs the subcommand.
func (c *configShowCmd) Run(a *app, parsed *kong.Context) error {
	loaded, err := c.load(parsed)
	if err != nil {
		return err
	}
	if !c.JSON {
		return loaded.Show(a.out)
	}
	return printJSON(a.out, loaded.Settings())
}

// settingFlags are settings of the daemon; the tag "key" is the key of the setting. Flags override the environment,
// which overrides the file.
type settingFlags struct {
	Config    string   `placeholder:"FILE" type:"path" help:"Configuration file (default: $$GOROCED_CONFIG, then /etc/goroce/goroced.toml for root and ~/.config/goroce/goroced.toml for others, if it is there)." group:"Settings"`
	Socket    string   `key:"socket" placeholder:"PATH" type:"path" help:"Socket for clients (default: /run/goroce/goroced.sock for root, $$XDG_RUNTIME_DIR/goroce/goroced.sock for others, /tmp/goroce-UID/goroced.sock if there is no such directory that is the user's alone)." group:"Settings"`
	Admin     string   `key:"admin" placeholder:"PATH" type:"path" help:"Socket for looking at the daemon (default: goroced-admin.sock in the same place)." group:"Settings"`
	Link      string   `complete:"auto,udp,rawsock,afxdp" key:"device.link" placeholder:"LINK" help:"What carries the packets of the device: auto, udp, rawsock, afxdp." group:"Settings"`
	NetIf     string   `complete:"netifs" key:"device.netif" name:"netif" placeholder:"IF" help:"Network interface whose addresses the device has." group:"Settings"`
	Addr      string   `key:"device.addresses" placeholder:"IP,..." help:"Own addresses of the device, instead of --netif." group:"Settings"`
	Shards    string   `key:"device.shards" placeholder:"N" help:"Threads that the device spreads its queue pairs over." group:"Settings"`
	Drain     string   `key:"drain" placeholder:"TIME" help:"How long clients may take to leave when the daemon is told to end." group:"Settings"`
	IdleExit  string   `key:"idle_exit" placeholder:"TIME" help:"End when there has been no client for so long (default: never)." group:"Settings"`
	LogLevel  string   `complete:"debug,info,warn,error" key:"log.level" placeholder:"LEVEL" help:"debug, info, warn, error." group:"Settings"`
	LogFormat string   `complete:"text,json" key:"log.format" placeholder:"FORMAT" help:"text, json." group:"Settings"`
	Metrics   string   `key:"metrics.listen" placeholder:"ADDR:PORT" help:"Serve /metrics and /healthz on this loopback address." group:"Settings"`
	Set       []string `placeholder:"KEY=VALUE" sep:"none" help:"Any setting: the keys are those of 'config show'." group:"Settings"`
}

// load loads the configuration. The flags are those of the parsed command line.
func (f *settingFlags) load(parsed *kong.Context) (*config.Config, error) {
	var flags []config.Flag
	for _, flag := range parsed.Flags() {
		if key := flag.Tag.Get("key"); key != "" && flag.Target.String() != "" {
			flags = append(flags, config.Flag{Name: "--" + flag.Name, Key: key, Value: flag.Target.String()})
		}
	}
	for _, s := range f.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, &usage{text: driver.Refuse("configuration", "--set", s, "KEY=VALUE", ib.ErrInvalid).Error()}
		}
		flags = append(flags, config.Flag{Name: "--set", Key: key, Value: value})
	}
	c, err := config.Load(config.Process(f.Config, flags))
	var first *config.Error
	if errors.As(err, &first) && strings.HasPrefix(first.Source, "--") { // those of flags come last
		err = &usage{text: err.Error()}
	}
	return c, err
}
