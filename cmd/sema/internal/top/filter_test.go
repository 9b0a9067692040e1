package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// TestModel_Filters checks the terms that the dashboard has as well, that bad ones are explained, and
// that the screen names a filter that applies.
func TestModel_Filters(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 120, 24)
	span := func(d time.Duration) *scope.Duration { return new(scope.Duration(d)) }
	all := s.from.page.semaphores
	all[1].Times = &scope.Times{HeadAge: span(7 * time.Second), OldestHold: span(83 * time.Minute)}
	all[4].Times = &scope.Times{OldestHold: span(15 * time.Minute), HoldP99: span(time.Second)}
	all[2].Declared = true // deploy
	all[7].Waiting, all[7].Times = 1, &scope.Times{HeadAge: span(300 * time.Millisecond)}
	s.polled(noon)
	for text, want := range map[string]string{
		"":              "broken payments-reconciliation-eu-central-1 db thumbnails gpu emails legacy api/search deploy",
		"DE":            "deploy",
		"is:full":       "payments-reconciliation-eu-central-1 db gpu",
		"p is:full":     "payments-reconciliation-eu-central-1 gpu",
		"is:waiting":    "payments-reconciliation-eu-central-1 db thumbnails",
		"is:draining":   "legacy",
		"is:rate":       "emails",
		"is:idle":       "deploy",
		"is:declared":   "deploy",
		"is:problem":    "broken payments-reconciliation-eu-central-1 db gpu legacy", // legacy is drained and held
		"wait>5s":       "db",
		"wait<1s":       "thumbnails",
		"held>10m":      "db gpu",
		"held>10m wait": "",
	} {
		s.press("/", "ctrl+u")
		for _, key := range strings.Split(text, "") {
			s.press(key)
		}
		s.press("enter")
		var got []string
		for _, one := range s.shown() {
			got = append(got, one.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
		if text != "" {
			s.want("/" + text)
		}
		if text == "is:declared" {
			s.want("– declared")
		}
	}
	s.press("/", "ctrl+u")
	for _, key := range strings.Split("held>10m wait", "") {
		s.press(key)
	}
	s.want("1208 waiting", `none of 9 semaphores matches "held>10m wait"`)
	s.press("enter", "esc")
	if len(s.shown()) != 9 || strings.Contains(s.text(), "held>10m") {
		t.Errorf("the filter stays:\n%s", s.text())
	}
	s.press("/")
	for _, key := range strings.Split("is:bad", "") {
		s.press(key)
	}
	s.want(`"is:bad" is not a filter: use is:full`, "or is:problem")
	s.press("enter", "d", "y") // keys must not act on a semaphore that is not shown
	s.wantDone()
	s.press("/", "ctrl+u", "z", "z")
	s.want(`none of 9 semaphore names contains "zz"`)
}

// TestModel_WideAt120 checks that terminals of 120 columns and 34 lines have the columns and the pane.
func TestModel_WideAt120(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 120, 34)
	s.choose("db")
	s.want("RECENT USE", "WAIT P99", "GRANTS/S", "report.go:88 team=finance")
	for range 30 {
		s.polled(noon)
	}
	if got := strings.Count(s.text(), "██████████"); got < 2 { // 10 polls
		t.Errorf("%d sparklines:\n%s", got, s.text())
	}
	if strings.Contains(newScreen(t, 119, 34).text(), "RECENT USE") {
		t.Error("119 columns are not wide")
	}
}
