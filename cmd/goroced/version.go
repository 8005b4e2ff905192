package main

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"time"
)

// versionCmd is `goroced version`.
type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// version is the build information of the program.
type version struct {
	Version  string `json:"version"` // "(devel)" if not built from a released version
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision, as in RFC 3339
	Modified bool   `json:"modified,omitempty"`
	Sum      string `json:"sum,omitempty"` // of the module, as the checksum database has it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{Main: debug.Module{Version: "(unknown)"}}
	}
	return versionOf(info)
}

// pseudo is the end of the version of a commit without a tag (go.dev/ref/mod#pseudo-versions).
var pseudo = regexp.MustCompile(`[-.](\d{14})-([0-9a-f]{12})(\+\w+)?$`)

// versionOf reads what the go command knew: of a checkout its commit and that commit's time, of `go install
// MODULE@VERSION` the module's version and checksum. The version of a commit without a tag has both in its name.
func versionOf(info *debug.BuildInfo) version {
	v := version{Version: info.Main.Version, Sum: info.Main.Sum, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if m := pseudo.FindStringSubmatch(v.Version); m != nil {
		v.Revision = m[2]
		if at, err := time.Parse("20060102150405", m[1]); err == nil {
			v.Time = at.Format(time.RFC3339)
		}
	}
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
	}
	if v.Modified {
		line += " with changes"
	}
	if v.Time != "" {
		line += " of " + v.Time
	}
	if v.Revision == "" && v.Sum != "" {
		line += ", module " + v.Sum
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
