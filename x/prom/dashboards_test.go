package prom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/internal/storetest/promtest"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/prom"
	"github.com/sema-go/sema/x/remotestore"
	"github.com/sema-go/sema/x/server"
)

// The dashboards, by the names of their files.
var dashboards = []string{"service", "program"}

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
	Panels      []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  datasource
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		Expr, RefID, LegendFormat string
		Datasource                datasource
	}
}

type datasource struct{ Type, UID string }

// readDashboard reads a dashboard, and the selectors of its variables by their names.
func readDashboard(t *testing.T, name string) (d dashboard, variables map[string]string) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(deploy, "grafana", name+".json"))), &d); err != nil {
		t.Fatal(err)
	}
	variables = map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = ""
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)
		selector := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(fmt.Sprint(query["query"]))
		if selector == nil {
			t.Fatalf("%s: variable %s has the query %v", name, v.Name, v.Query)
		}
		variables[v.Name] = selector[1]
	}
	return d, variables
}

// resolve replaces the variables of an expression. One that the dashboard does not have is
// left, which is no PromQL.
func resolve(expr, interval string, variables map[string]string) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", interval)
	for v := range variables {
		expr = strings.ReplaceAll(expr, `"$`+v+`"`, `".*"`)
	}
	return expr
}

// The types of panels and the units of Grafana that the dashboards use.
var (
	panelTypes = []string{"row", "stat", "timeseries"}
	panelUnits = []string{"", "s", "short", "percentunit", "ops", "reqps", "none"}
)

func TestDashboards_QueryWhatIsExported(t *testing.T) {
	t.Parallel()
	rules := read(t, filepath.Join(deploy, "prometheus/sema.rules.yml"))
	uids := map[string]bool{}
	for _, name := range dashboards {
		d, variables := readDashboard(t, name)
		if d.UID == "" || uids[d.UID] || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 15 {
			t.Errorf("%s: uid %q, title %q, schema %d, %d panels", name, d.UID, d.Title, d.SchemaVersion, len(d.Panels))
		}
		uids[d.UID] = true
		var exprs []string
		for _, a := range d.Annotations.List {
			exprs = append(exprs, a.Expr)
		}
		for _, selector := range variables {
			if selector != "" {
				exprs = append(exprs, selector)
				checkNames(t, selector, rules)
			}
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
			if !slices.Contains(panelTypes, p.Type) || !slices.Contains(panelUnits, p.FieldConfig.Defaults.Unit) || p.GridPos.W*p.GridPos.H == 0 {
				t.Errorf("%s: panel %q has type %q, unit %q, position %v", name, p.Title, p.Type, p.FieldConfig.Defaults.Unit, p.GridPos)
			}
			if p.Type == "row" {
				continue
			}
			if len(p.Targets) == 0 || p.Description == "" {
				t.Errorf("%s: panel %q has %d queries and the description %q", name, p.Title, len(p.Targets), p.Description)
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if want := (datasource{"prometheus", "${datasource}"}); target.Datasource != want || p.Datasource != want || target.RefID == "" || refs[target.RefID] || target.LegendFormat == "" {
					t.Errorf("%s: panel %q has the query %+v", name, p.Title, target)
				}
				refs[target.RefID] = true
				exprs = append(exprs, target.Expr)
				checkNames(t, target.Expr, rules)
			}
		}
		parse(t, exprs, variables)
	}
}

// parse checks with promtool that the expressions are PromQL once their variables are
// replaced.
func parse(t *testing.T, exprs []string, variables map[string]string) {
	t.Helper()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, e := range exprs {
		e = resolve(e, "5m", variables)
		if strings.Contains(e, "$") {
			t.Errorf("%s has a variable that the dashboard has not", e)
		}
		rules = append(rules, rule{fmt.Sprint("test:expr", i), e})
	}
	file, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "exprs", "rules": rules}}}) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "exprs.yml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, ".", "check", "rules", path)
}

// TestDashboards_ShowDataOfALoadedServiceAndProgram has a real Prometheus scrape a server of
// semaphores and a Go program. Each query of each panel must return data.
func TestDashboards_ShowDataOfALoadedServiceAndProgram(t *testing.T) {
	t.Parallel()
	p := startProgram(t, prom.MaxNames(1))
	service := startService(t, p)
	loadEveryKind(t, p)
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, promtest.Scale([]byte(read(t, filepath.Join(deploy, "prometheus/sema.rules.yml")))), 0o600); err != nil {
		t.Fatal(err)
	}
	prometheus := promtest.Start(t, promtest.Config{Target: p.target, Also: []string{service}, Rules: []string{rules}, Interval: 2 * time.Second})

	missing := map[string]string{} // panels by their queries
	for _, name := range dashboards {
		d, variables := readDashboard(t, name)
		for _, a := range d.Annotations.List {
			missing[resolve(a.Expr, "1m", variables)] = name + ": annotation"
		}
		for v, selector := range variables {
			if selector != "" {
				missing[resolve(selector, "1m", variables)] = name + ": variable " + v
			}
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				missing[resolve(target.Expr, "1m", variables)] = name + ": " + panel.Title
			}
		}
	}
	for end := time.Now().Add(5 * time.Minute); len(missing) > 0; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			for expr, panel := range missing {
				t.Errorf("%s shows nothing: %s", panel, expr)
			}
			return
		}
		for expr := range missing {
			if len(prometheus.Query(expr)) > 0 {
				delete(missing, expr)
			}
		}
	}
}

// TestDocs_StateWhatTheServiceExports checks the column "sema serve" of docs/metrics.md.
func TestDocs_StateWhatTheServiceExports(t *testing.T) {
	t.Parallel()
	service := startService(t, startProgram(t))
	rows := regexp.MustCompile("(?m)^\\| `(sema_\\w+)` \\| \\w+ \\| [^|]* \\| [^|]*\\| (yes|no) \\|").FindAllStringSubmatch(read(t, filepath.Join(docs, "metrics.md")), -1)
	if len(rows) < 30 {
		t.Fatalf("%d rows", len(rows))
	}
	var missing []string
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // until leases were granted, renewed and released
		exported := get(t, "http://"+service+"/metrics")
		missing = missing[:0]
		for _, row := range rows {
			if row[2] == "yes" && !strings.Contains(exported, "\n# TYPE "+row[1]+" ") {
				missing = append(missing, row[1])
			}
		}
		if len(missing) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sema serve does not export %v", missing)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// startService starts a server of semaphores that a Go client loads, and returns its address.
func startService(t *testing.T, p *program) string {
	t.Helper()
	s, err := server.New(memstore.New(), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewUnstartedServer(s)
	listening.Config.Protocols = &http.Protocols{}
	listening.Config.Protocols.SetHTTP1(true)
	listening.Config.Protocols.SetUnencryptedHTTP2(true)
	listening.Start()
	t.Cleanup(func() {
		s.Close(context.Background())
		listening.Close()
	})
	address := strings.TrimPrefix(listening.URL, "http://")
	store, err := remotestore.Open(p.ctx, remotestore.Options{Hosts: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	client := fleet.New(store)
	t.Cleanup(func() { client.Close(context.Background(), fleet.CloseAbandon) })
	builds, err := client.Semaphore("builds", 2, fleet.TTL(5*time.Second), sema.MaxWait(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	p.run(5, builds, 100*time.Millisecond, 0)
	p.load.Go(func() {
		for p.sleep(50 * time.Millisecond) {
			if permit, err := builds.TryAcquire(p.ctx, 1); err == nil {
				permit.Release()
			}
		}
	})
	return address
}

// loadEveryKind registers a gate of each kind with the program, and uses them until the test
// ends.
func loadEveryKind(t *testing.T, p *program) {
	t.Helper()
	observed := sema.Observe(p.metrics)
	db := p.limits.Semaphore("db", 2, "why", sema.MaxWait(20*time.Millisecond), sema.Diagnose(sema.DiagnoseFull))
	p.run(5, db, 30*time.Millisecond, 0)
	leaky := p.limits.Semaphore("leaky", 1<<20, "why", sema.Diagnose(sema.DiagnoseFull))
	p.load.Go(func() {
		for p.sleep(time.Second) {
			leak(leaky)
			runtime.GC()
		}
	})

	tenants := wfq.New(2, sema.Name("tenants"), observed)
	p.limits.Add("tenants", tenants, "why")
	for _, class := range []string{"paid", "free"} {
		p.run(4, tenants.Class(class), 30*time.Millisecond, 0)
	}
	mail := rate.New(100, time.Second, sema.Name("mail"), observed)
	p.limits.Add("mail", mail, "why")
	p.run(1, mail, 0, 50*time.Millisecond)

	work := group.New(p.ctx, sema.New(1), group.AllErrors)
	p.limits.Add("import", work, "why")
	p.limits.Semaphore("twice", 1, "why")
	p.metrics.Add("twice", sema.New(1))

	items := pool.New(pool.Config[int]{
		Size: 2, Open: func(context.Context) (int, error) { return 0, nil }, Options: []sema.Option{sema.Name("pg"), observed},
	})
	p.limits.Add("pg", items, "why")
	p.load.Go(func() {
		for p.sleep(50 * time.Millisecond) {
			if item, err := items.Get(p.ctx); err == nil {
				item.Discard()
			}
		}
	})

	api := admit.New(admit.Config{Name: "api", Queue: wfq.New(5), Limit: &admit.AIMD{Max: 5}, Breaker: admit.NewBreaker(admit.BreakerConfig{})})
	p.limits.Add("api", api, "why")
	api.Shed(true)
	client := fleet.New(memstore.New())
	t.Cleanup(func() { client.Close(context.Background(), fleet.CloseAbandon) })
	gpu, err := client.Semaphore("gpu", 1, observed, fleet.TTL(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p.limits.Add("gpu", gpu, "why")
	p.run(3, gpu, 30*time.Millisecond, 0)
	p.load.Go(func() {
		for i := 0; p.sleep(50 * time.Millisecond); i++ {
			if _, err := api.Admit(p.ctx, admit.Request{Class: "free"}); err == nil {
				t.Error(errors.New("admitted while shedding"))
			}
			sema.New(1, sema.Name(fmt.Sprint("user-", i)), observed).TryAcquire(p.ctx, 2) // a name that is not declared
		}
	})
}
