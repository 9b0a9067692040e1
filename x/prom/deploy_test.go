package prom_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/x/internal/measure"
	"github.com/sema-go/sema/x/prom"
)

const (
	deploy = "../../deploy"
	docs   = "../../docs"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(proctest.Need(t, "promtool", "prometheus"), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRules_PassTheirUnitTests(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(filepath.Join(deploy, "prometheus/*_test.yml"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	promtool(t, filepath.Join(deploy, "prometheus"), "check", "rules", "sema.rules.yml")
	for _, test := range tests {
		promtool(t, filepath.Join(deploy, "prometheus"), "test", "rules", filepath.Base(test))
	}
}

// TestRules_AreTestedAndExplained checks that each alert has a test in which it fires, and a
// section of the runbook that it links to.
func TestRules_AreTestedAndExplained(t *testing.T) {
	t.Parallel()
	rules := read(t, filepath.Join(deploy, "prometheus/sema.rules.yml"))
	files, err := filepath.Glob(filepath.Join(deploy, "prometheus/*_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	for _, f := range files {
		tests += read(t, f)
	}
	runbook := read(t, filepath.Join(docs, "runbook.md"))
	alerts := regexp.MustCompile(`- alert: (\w+)\n(?s:.*?)runbook_url: (\S+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) != strings.Count(rules, "- alert: ") || len(alerts) < 10 {
		t.Fatalf("%d alerts with a link", len(alerts))
	}
	for _, a := range alerts {
		name, link := a[1], a[2]
		if !regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts`).MatchString(tests) {
			t.Errorf("no test in which %s fires", name)
		}
		if want := "https://github.com/sema-go/sema/blob/main/docs/runbook.md#" + strings.ToLower(name); link != want {
			t.Errorf("%s links to %s, want %s", name, link, want)
		}
		if !strings.Contains(runbook, "\n## "+name+"\n") {
			t.Errorf("the runbook has no section %s", name)
		}
	}
	checkNames(t, rules, rules)
}

// checkNames checks that all metrics in a text exist: exported ones, and those that rules
// record.
func checkNames(t *testing.T, text, rules string) {
	t.Helper()
	exported := map[string]bool{}
	for _, d := range measure.All() {
		exported[d.Name] = true
		if d.Kind == measure.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				exported[d.Name+suffix] = true
			}
		}
	}
	for _, r := range regexp.MustCompile(`- record: (\S+)`).FindAllStringSubmatch(rules, -1) {
		exported[r[1]] = true
	}
	found := regexp.MustCompile(`\bsema[_:][a-z0-9_:]+`).FindAllString(text, -1)
	if len(found) == 0 {
		t.Error("no metrics")
	}
	for _, name := range found {
		if !exported[name] {
			t.Errorf("%s is not exported", name)
		}
	}
}

// TestDocs_ListAllMetrics checks the table of docs/metrics.md.
func TestDocs_ListAllMetrics(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join(docs, "metrics.md"))
	for _, d := range measure.All() {
		if !strings.Contains(text, "`"+d.Name+"`") {
			t.Errorf("docs/metrics.md does not list %s", d.Name)
		}
	}
	checkNames(t, strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "| `sema_")
	}), "\n"), "")
}

// TestExposition_PassesTheLinter checks names and help texts with promtool.
func TestExposition_PassesTheLinter(t *testing.T) {
	t.Parallel()
	metrics := prom.New()
	db := sema.New(1, sema.Name("db"), sema.Observe(metrics))
	metrics.Add("db", db)
	acquire(t, db, 1).Release()
	r := prometheus.NewRegistry()
	r.MustRegister(metrics)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	cmd := exec.Command(proctest.Need(t, "promtool", "prometheus"), "check", "metrics")
	cmd.Stdin = w.Body
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
