package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// dist has what operators install.
const (
	dashboardFile = "../../dist/grafana/goroce.json"
	alertsDir     = "../../dist/prometheus"
	alertsFile    = alertsDir + "/goroce.rules.yml"
)

// dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query json.RawMessage
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", dashboardFile, err)
	}
	return d
}

// queries returns the queries of all panels, with Grafana's variables filled in.
func (d *dashboard) queries() (list []string) {
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$device", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			list = append(list, fill.Replace(target.Expr))
		}
	}
	return list
}

var (
	metricName = regexp.MustCompile(`\b(?:goroce|go|process)_\w+\b`)
	selector   = regexp.MustCompile(`\b((?:goroce|go|process)_\w+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`(\w+) *(?:=~|!=|!~|=)`)
)

// metricLabels returns the labels of all metrics of a daemon with clients, by the metrics' names.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	families, err := metricsRegistry(someStats{}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, f := range families {
		names := []string{"job", "instance"} // Prometheus adds them
		for _, pair := range f.Metric[0].Label {
			names = append(names, pair.GetName())
		}
		if kind := f.GetType().String(); kind == "SUMMARY" || kind == "HISTOGRAM" {
			labels[f.GetName()+"_sum"], labels[f.GetName()+"_count"] = names, names
			labels[f.GetName()+"_bucket"] = append(names, "le")
		}
		labels[f.GetName()] = names
	}
	return labels
}

// wantMetrics checks that a text names only metrics and labels that there are.
func wantMetrics(t *testing.T, labels map[string][]string, where, text string) {
	t.Helper()
	for _, name := range metricName.FindAllString(text, -1) {
		if labels[name] == nil {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		for _, label := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels[m[1]], label[1]) {
				t.Errorf("%s: %s has the labels %v, want %s", where, m[1], labels[m[1]], label[1])
			}
		}
	}
}

// TestDashboard: each panel asks for metrics that the daemon has, says what it shows, and covers no other.
func TestDashboard(t *testing.T) {
	d, labels := readDashboard(t), metricLabels(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q shows nothing, or does not say what", p.Title)
		}
		for _, target := range p.Targets {
			wantMetrics(t, labels, p.Title, target.Expr)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q covers %q", p.Title, other)
				}
				if taken[[2]int{x, y}] = p.Title; x >= 24 {
					t.Fatalf("panel %q is wider than the page", p.Title)
				}
			}
		}
	}
	for _, v := range d.Templating.List {
		wantMetrics(t, labels, "variable "+v.Name, string(v.Query))
	}
	promtool := require.Command(t, "promtool")
	rules := filepath.Join(t.TempDir(), "rules.yml")
	text := "groups:\n- name: dashboard\n  rules:\n"
	for i, query := range d.queries() {
		text += fmt.Sprintf("  - record: query%d\n    expr: %q\n", i, query)
	}
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runQuiet(t, promtool, "check", "rules", rules)
}

// TestAlerts: the rules are about metrics that the daemon has, fire when they shall, and docs/operate.md has each.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, metricLabels(t), alertsFile, string(text))
	manual, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(alertsDir + "/goroce.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(manual), "`"+m[1]+"`") {
			t.Errorf("docs/operate.md does not say what to do about %s", m[1])
		}
		if !regexp.MustCompile(`alertname: ` + m[1] + `\s+exp_alerts`).Match(tests) {
			t.Errorf("no test lets %s fire", m[1])
		}
	}
	promtool := require.Command(t, "promtool")
	runQuiet(t, promtool, "check", "rules", "--lint=all", "--lint-fatal", alertsFile)
	runQuiet(t, promtool, "check", "config", alertsDir+"/prometheus.yml")
	runQuiet(t, promtool, "test", "rules", alertsDir+"/goroce.rules.test.yml")
}

// freeTCP returns an address that nobody listens on.
func freeTCP(t *testing.T) string { return "127.0.0.1:" + freePort(t) }

// TestPrometheus: a real Prometheus scrapes a daemon with a client, as dist/prometheus configures it. Each query of the
// dashboard has an answer, and the alerts are evaluated.
func TestPrometheus(t *testing.T) {
	require.FullRun(t, "it takes seconds")
	prometheus := require.Command(t, "prometheus")
	dir, metrics, web := t.TempDir(), freeTCP(t), freeTCP(t)
	socket, addr := filepath.Join(dir, "s"), linktest.Loopback().String()
	startUntil(t, "msg=ready", "serve", "--socket", socket, "--admin", filepath.Join(dir, "a"), "--addr", addr,
		"--metrics", metrics)
	serve(t, "rping", "-s", "--socket", socket, "-a", addr)
	startPrometheus(t, prometheus, dir, metrics, web)

	ask := func(path string, answer any) error {
		r, err := http.Get("http://" + web + "/api/v1/" + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		return json.NewDecoder(r.Body).Decode(answer)
	}
	d := readDashboard(t)
	for _, query := range d.queries() {
		require.Until(t, "Prometheus answers "+query, func() bool {
			var answer struct{ Data struct{ Result []any } }
			err := ask("query?query="+url.QueryEscape(query), &answer)
			return err == nil && len(answer.Data.Result) > 0
		})
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, State string }
			}
		}
	}
	if err := ask("rules", &rules); err != nil || len(rules.Data.Groups) != 1 {
		t.Fatalf("rules %+v, %v; want 1", rules, err)
	}
	for _, rule := range rules.Data.Groups[0].Rules {
		if rule.Health != "ok" || rule.State == "firing" {
			t.Errorf("alert %s is %s, its evaluation %s; want it ok, and not firing", rule.Name, rule.State,
				rule.Health)
		}
	}
}

// startPrometheus starts one with the files of dist, but quicker.
func startPrometheus(t *testing.T, program, dir, metrics, web string) {
	t.Helper()
	config, err := os.ReadFile(alertsDir + "/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("127.0.0.1:9471", metrics, "goroce.rules.yml", rules, ": 15s", ": 500ms")
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(changed.Replace(string(config))), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+file, "--web.listen-address="+web,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--log.level=warn")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus said:\n%s", &said)
		}
	})
}
