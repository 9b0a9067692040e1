package loadtest

import (
	"strings"
	"testing"
	"time"
)

// TestResult_CountsHaveTheirNouns checks singular and plural.
func TestResult_CountsHaveTheirNouns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		callers int
		errors  int64
		want    []string
	}{
		{1, 1, []string{"\n1 caller, 1 permit, exact, ", "\nfailed 1 time: closed\n"}},
		{2, 1234, []string{"\n2 callers, 1 permit, exact, ", "\n1 permit for 2 callers: ", "\nfailed 1,234 times: closed\n"}},
	} {
		r := result{Store: "mem:", elapsed: time.Second, Errors: map[string]int64{"closed": c.errors}, settings: settings{mode: "exact", callers: c.callers, capacity: 1}}
		for _, want := range c.want {
			if !strings.Contains(r.text(), want) {
				t.Errorf("no %q in\n%s", want, r.text())
			}
		}
	}
}
