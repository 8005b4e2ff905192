package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd is `goroced version`.
type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// version is the build information of the program.
type version struct {
	Version  string `json:"version"` // "(devel)" if not built from a released version
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() version {
	v := version{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String returns the version on one line.
func (v version) String() string {
	line := "goroced " + v.Version
	if v.Revision != "" {
		line += ", revision " + v.Revision
		if v.Modified {
			line += " with changes"
		}
	}
	return fmt.Sprintf("%s, %s, %s", line, v.Go, v.Platform)
}

// Run runs the subcommand.
func (c *versionCmd) Run(a *app) error {
	v := readVersion()
	if c.JSON {
		return printJSON(a.out, v)
	}
	_, err := fmt.Fprintln(a.out, v)
	return err
}
