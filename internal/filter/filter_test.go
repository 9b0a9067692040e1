package filter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/filter"
)

// TestFilter_Terms checks each term with subjects that differ in one fact.
func TestFilter_Terms(t *testing.T) {
	t.Parallel()
	all := []filter.Subject{
		{Name: "db:full", Full: true}, {Name: "db:queue", Full: true, Waiting: true, Problem: true, Wait: 12 * time.Second},
		{Name: "draining", Draining: true}, {Name: "paused", Paused: true}, {Name: "idle", Idle: true}, {Name: "rate", Rate: true},
		{Name: "declared", Declared: true}, {Name: "leak", Problem: true, Held: 15 * time.Minute}, {Name: "short", Wait: 400 * time.Millisecond}, {Name: "a>b"},
	}
	for text, want := range map[string]string{
		"DB:": "db:full db:queue", "db is:full": "db:full db:queue", "IS:Waiting": "db:queue", "is:draining": "draining", "is:paused": "paused",
		"is:idle": "idle", "is:rate": "rate", "is:declared": "declared", "is:problem": "db:queue leak", "is:full wait>5s": "db:queue", "is:full wait>1h": "",
		"wait>12": "", "wait<13": "db:queue short", "wait<1s": "short", "wait>0.3": "db:queue short", "wait>0.5": "db:queue", "held>10m": "leak", "held>10m p99": "", "a>b": "a>b", "d q": "db:queue",
	} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, s := range all {
			if f.Matches(s) {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
	if f, err := filter.Parse("  "); err != nil || !f.Matches(filter.Subject{}) {
		t.Error("an empty filter matches everything")
	}
}

// TestFilter_BadOnesAreExplained checks that an error names what can be used instead.
func TestFilter_BadOnesAreExplained(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"is:bad": "is:declared or is:problem", "is:": "is:full", "db is:": "is:full", "wait>": "wait>5s", "wait>soon": "wait>5s", "wait>1.2.3": "wait>5s", "wait>9999999999999": "wait>5s", "held<-1s": "held<5s",
		"age>5s": "wait and held", "waiting>3": "wait and held", "use>80%": "wait and held", "use>=80": "wait and held",
	} {
		if _, err := filter.Parse(text); err == nil || !strings.Contains(err.Error(), "is not a filter") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]bool{"db": true, "DB:": true, "a<b": true, "db main": false, "is:full": false, "wait>5s": false, "": false} {
		if filter.Plain(text) != want {
			t.Errorf("%q: plain is not %v", text, want)
		}
	}
}
