package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what of a GitHub workflow concerns this repository.
type workflow struct {
	Name string         `yaml:"name"`
	On   map[string]any `yaml:"on"`
	Jobs map[string]struct {
		RunsOn string `yaml:"runs-on"`
		Steps  []struct {
			Name string         `yaml:"name"`
			Uses string         `yaml:"uses"`
			Run  string         `yaml:"run"`
			With map[string]any `yaml:"with"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// TestWorkflows reads the workflows of GitHub: they parse, each step does one thing, and the
// scripts that they run are there and may be executed.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there is no workflow")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if w.Name == "" || len(w.On) == 0 || len(w.Jobs) == 0 {
			t.Errorf("%s: name %q, %d events and %d jobs; none may be missing", file, w.Name, len(w.On), len(w.Jobs))
		}
		for name, job := range w.Jobs {
			if job.RunsOn == "" || len(job.Steps) == 0 {
				t.Errorf("%s: job %s runs on %q and has %d steps", file, name, job.RunsOn, len(job.Steps))
			}
			for i, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") {
					t.Errorf("%s: step %d of job %s must either use an action or run a command", file, i, name)
				}
				checkScripts(t, file, step.Run)
			}
		}
	}
}

// TestScripts reads .ci: what its scripts run of it is there, too.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".ci/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte("#!")) || !bytes.Contains(text, []byte("\nset -euo pipefail\n")) {
			t.Errorf("%s must name its interpreter and end with the first command that fails", file)
		}
		checkScripts(t, file, string(text))
	}
}

// checkScripts looks for the scripts of .ci that begin a line of commands.
func checkScripts(t *testing.T, file, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		script, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(script, ".ci/") {
			continue
		}
		if info, err := os.Stat(filepath.Join(root, script)); err != nil {
			t.Errorf("%s runs %s: %v", file, script, err)
		} else if info.Mode()&0o111 == 0 {
			t.Errorf("%s runs %s, which may not be executed", file, script)
		}
	}
}
