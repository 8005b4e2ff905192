package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// source is a clone of the commit that is released.
type source struct {
	dir     string
	version string // as v0.1.0
	commit  string
	date    time.Time // of the commit
}

// released are the versions that a module of this path may have (semver.org).
var released = regexp.MustCompile(`^v[01]\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// checkOut clones the repository around this folder into dir. The clone's only tags are the version of each module that
// has a program, so that the go command stamps programs with version, commit and date. A tag of the version that the
// repository has must be of the same commit.
func checkOut(ctx context.Context, version, revision, dir string) (*source, error) {
	if !released.MatchString(version) {
		return nil, fmt.Errorf("-version is %q; it must be like v0.1.0 or v0.1.0-rc.1", version)
	}
	git := func(dir string, args ...string) (string, error) { return command(ctx, dir, nil, "git", args...) }
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	commit, err := git(root, "rev-parse", "--verify", revision+"^{commit}")
	if err != nil {
		return nil, err
	}
	tagged, err := git(root, "rev-parse", "--verify", "--quiet", "refs/tags/"+version+"^{commit}")
	if err == nil && tagged != commit {
		return nil, fmt.Errorf("tag %s is commit %s, not %s: release that one, or choose another version", version,
			tagged, commit)
	}
	for _, step := range [][]string{
		{"clone", "--quiet", "--no-tags", "--no-checkout", root, dir},
		{"-C", dir, "fetch", "--quiet", "--no-tags", "origin", commit},
		{"-C", dir, "checkout", "--quiet", "--detach", commit},
		{"-C", dir, "tag", version},
		{"-C", dir, "tag", plugin.module + "/" + version},
	} {
		if _, err := git(root, step...); err != nil {
			return nil, err
		}
	}
	epoch, err := git(dir, "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, err
	}
	return &source{dir, version, commit, time.Unix(seconds, 0).UTC()}, nil
}

// epoch is the date as programs that make files reproducibly want it (reproducible-builds.org/specs/source-date-epoch).
func (s *source) epoch() string { return "SOURCE_DATE_EPOCH=" + strconv.FormatInt(s.date.Unix(), 10) }
