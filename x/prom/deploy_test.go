package prom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// A dashboard is what a test needs of a Grafana dashboard.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, RefID string }
	}
}

func TestDashboards_QueryWhatIsExported(t *testing.T) {
	t.Parallel()
	rules := read(t, filepath.Join(deploy, "prometheus/sema.rules.yml"))
	for _, name := range []string{"service", "program"} {
		text := read(t, filepath.Join(deploy, "grafana", name+".json"))
		var d dashboard
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 15 {
			t.Errorf("%s: uid %q, title %q, schema %d, %d panels", name, d.UID, d.Title, d.SchemaVersion, len(d.Panels))
		}
		var exprs []string
		for _, a := range d.Annotations.List {
			exprs = append(exprs, a.Expr)
		}
		ids := map[int]bool{}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: panel %d occurs twice", name, p.ID)
			}
			ids[p.ID] = true
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if taken[at] != "" || at[0] >= 24 {
						t.Fatalf("%s: panel %q overlaps %q at %v", name, p.Title, taken[at], at)
					}
					taken[at] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if len(p.Targets) == 0 || p.Description == "" {
				t.Errorf("%s: panel %q has %d queries and the description %q", name, p.Title, len(p.Targets), p.Description)
			}
			for _, target := range p.Targets {
				exprs = append(exprs, target.Expr)
				checkNames(t, target.Expr, rules)
			}
		}
		var variables []string
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
			if v.Type == "query" {
				query, _ := v.Query.(map[string]any)
				selector := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(fmt.Sprint(query["query"]))
				if selector == nil {
					t.Fatalf("%s: variable %s has the query %v", name, v.Name, v.Query)
				}
				exprs = append(exprs, selector[1])
				checkNames(t, selector[1], rules)
			}
		}
		parse(t, exprs, variables)
	}
}

// parse checks with promtool that the expressions are PromQL once their variables are
// replaced. A variable that the dashboard does not have is left, which is no PromQL.
func parse(t *testing.T, exprs, variables []string) {
	t.Helper()
	var list []string
	for i, e := range exprs {
		e = strings.ReplaceAll(e, "$__rate_interval", "5m")
		for _, v := range variables {
			e = strings.ReplaceAll(e, `"$`+v+`"`, `".*"`)
		}
		if strings.Contains(e, "$") {
			t.Errorf("%s has a variable that the dashboard has not", e)
		}
		list = append(list, fmt.Sprintf("{record: 'test:expr%d', expr: %s}", i, quoted(e)))
	}
	path := filepath.Join(t.TempDir(), "exprs.yml")
	if err := os.WriteFile(path, []byte("groups: [{name: exprs, rules: [\n"+strings.Join(list, ",\n")+"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, ".", "check", "rules", path)
}

func quoted(s string) string {
	data, _ := json.Marshal(s)
	data = bytes.ReplaceAll(data, []byte(`\u003e`), []byte(`>`))
	return string(bytes.ReplaceAll(data, []byte(`\u003c`), []byte(`<`)))
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
