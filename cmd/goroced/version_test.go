package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestVersionLine: what `goroced version` says of each way to build the program.
func TestVersionLine(t *testing.T) {
	checkout := []debug.BuildSetting{{Key: "vcs.revision", Value: "372af55aa3650a0922133ac14ad1a54ee60a8f3f"},
		{Key: "vcs.time", Value: "2026-11-24T16:26:03Z"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"go build in a checkout that was changed", debug.BuildInfo{Main: debug.Module{Version: "v0.1.0+dirty"},
			Settings: checkout}, "goroced v0.1.0+dirty, revision 372af55aa3650a0922133ac14ad1a54ee60a8f3f with " +
			"changes of 2026-11-24T16:26:03Z, "},
		{"go build in a release's checkout", debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"},
			Settings: checkout[:2]}, "goroced v0.1.0, revision 372af55aa3650a0922133ac14ad1a54ee60a8f3f of " +
			"2026-11-24T16:26:03Z, "},
		{"go install @v0.1.0", debug.BuildInfo{Main: debug.Module{Version: "v0.1.0", Sum: "h1:abc="}},
			"goroced v0.1.0, module h1:abc=, "},
		{"go install @main, before the first release", debug.BuildInfo{Main: debug.Module{
			Version: "v0.0.0-20261124162603-372af55aa365", Sum: "h1:abc="}},
			"goroced v0.0.0-20261124162603-372af55aa365, revision 372af55aa365 of 2026-11-24T16:26:03Z, "},
		{"go install @main, after v0.1.0", debug.BuildInfo{Main: debug.Module{
			Version: "v0.1.1-0.20261124162603-372af55aa365"}},
			"goroced v0.1.1-0.20261124162603-372af55aa365, revision 372af55aa365 of 2026-11-24T16:26:03Z, "},
		{"without version control", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "goroced (devel), go"},
	} {
		if got := versionOf(&c.info).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s...", c.name, got, c.want)
		}
	}
}
