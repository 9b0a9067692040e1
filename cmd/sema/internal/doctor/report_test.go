package doctor

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sema-go/sema/fleet"
)

// TestReport_HostileServer checks that texts of a server do not control the terminal.
func TestReport_HostileServer(t *testing.T) {
	t.Parallel()
	hostile := "7.2\x1b]0;owned\x07\u009b31m\u202e\nok       use            forged"
	r := &report{Store: hostile}
	r.add(fleet.Finding{Check: "version", Level: fleet.LevelWarning, Seen: hostile, Advice: hostile})
	for _, as := range []string{"text", "json"} {
		var out strings.Builder
		if err := r.print(&out, as); err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.ReplaceAll(out.String(), "\x1b[", "") { // without the report's own colours
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("as %s: contains %q: %q", as, c, out.String())
			}
		}
		if strings.Contains(out.String(), "\u009b") || strings.Contains(out.String(), "\nok  ") {
			t.Errorf("as %s: %q", as, out.String())
		}
	}
}

func TestJudgeLatency_Levels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took, ttl time.Duration
		level     fleet.Level
	}{
		{time.Millisecond, 15 * time.Second, fleet.LevelOK}, {20 * time.Millisecond, 15 * time.Second, fleet.LevelOK},
		{21 * time.Millisecond, 15 * time.Second, fleet.LevelWarning}, {2 * time.Second, 15 * time.Second, fleet.LevelWarning},
		{6 * time.Second, 15 * time.Second, fleet.LevelProblem}, {21 * time.Millisecond, 60 * time.Millisecond, fleet.LevelProblem},
	} {
		if f := judgeLatency([]sample{{took: c.took}, {took: c.took}}, c.ttl); f.Level != c.level || f.Level != fleet.LevelOK && f.Advice == "" {
			t.Errorf("%v with a TTL of %v: %+v", c.took, c.ttl, f)
		}
	}
}
