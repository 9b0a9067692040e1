package doctor

import (
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // they wait for servers, mostly
	commandtest.Main(m, Command, redistest.Shared.End, pgtest.Shared.End, etcdtest.Shared.End)
}

// diagnose runs the program and reads its report.
func diagnose(t *testing.T, store string, flags ...string) (report, int) {
	t.Helper()
	result := commandtest.Run(t, append([]string{"doctor", "--store", store, "-o", "json", "--pings", "5"}, flags...)...)
	var r report
	if err := json.Unmarshal([]byte(result.Out), &r); err != nil {
		t.Fatalf("%v: %+v", err, result)
	}
	if strings.Contains(result.Out+result.Err, secret) {
		t.Errorf("there is a password in %+v", result)
	}
	return r, result.Code
}

// secret is what all passwords of tests have in them.
const secret = "open-sesame"

// want fails unless a check has a level, and says some text.
func (r report) want(t *testing.T, check string, level fleet.Level, text string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Level == level && strings.Contains(f.String(), text) {
			if level != fleet.LevelOK && f.Advice == "" {
				t.Errorf("%+v: and what is to be done?", f)
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

// slow reports whether round trips took long: this machine may be busy. How latency is
// judged is tested with samples.
func (r report) slow() bool {
	return slices.ContainsFunc(r.Findings, func(f fleet.Finding) bool { return f.Check == "latency" && f.Level == fleet.LevelWarning })
}

// wantFine fails unless nothing is wrong but what is named.
func (r report) wantFine(t *testing.T, code int, but ...string) {
	t.Helper()
	if r.slow() {
		but = append(but, "latency")
	}
	if code != 0 || r.Problems > 0 || r.Warnings > len(but) {
		t.Errorf("code %d: %s", code, r.text())
	}
}
