package doctor

import (
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the tests mostly wait for servers
	commandtest.Main(m, Command, redistest.Shared.End, pgtest.Shared.End, etcdtest.Shared.End)
}

// diagnose runs the program and parses its report.
func diagnose(t *testing.T, store string, flags ...string) (report, int) {
	t.Helper()
	result := commandtest.Run(t, append([]string{"doctor", "--store", store, "-o", "json", "--pings", "5"}, flags...)...)
	var r report
	if err := json.Unmarshal([]byte(result.Out), &r); err != nil {
		t.Fatalf("%v: %+v", err, result)
	}
	if strings.Contains(result.Out+result.Err, secret) {
		t.Errorf("password in %+v", result)
	}
	return r, result.Code
}

// secret is contained in all passwords of the tests.
const secret = "open-sesame"

// want fails unless a check has a level and contains a text.
func (r report) want(t *testing.T, check string, level fleet.Level, text string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Level == level && strings.Contains(f.String(), text) {
			if level != fleet.LevelOK && f.Advice == "" {
				t.Errorf("%+v: no advice", f)
			}
			return
		}
	}
	t.Errorf("no %s of level %s with %q in %s", check, level, text, r.text())
}

func (r report) text() string {
	var b strings.Builder
	r.print(&b, "text")
	return b.String()
}

// slow reports whether round trips took long, because this machine may be busy. Other tests check
// the judgement of latency with samples.
func (r report) slow() bool {
	return slices.ContainsFunc(r.Findings, func(f fleet.Finding) bool { return f.Check == "latency" && f.Level == fleet.LevelWarning })
}

// wantFine fails unless there are no findings besides OK, except for the named checks.
func (r report) wantFine(t *testing.T, code int, but ...string) {
	t.Helper()
	if r.slow() {
		but = append(but, "latency")
	}
	if code != 0 || r.Problems > 0 || r.Warnings > len(but) {
		t.Errorf("code %d: %s", code, r.text())
	}
}
