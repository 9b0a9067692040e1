package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAdvise_OfAServer checks the advice and the times that a server has measured.
func TestAdvise_OfAServer(t *testing.T) {
	t.Parallel()
	s := onService(t)
	for range 22 {
		s.must("run", "builds", "-n", "4", "--", "true")
	}
	text := s.must("advise", "builds")
	for _, want := range []string{"permits in use on average", "needed for 80 % utilisation: 1", "CAPACITY"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var a struct {
		Needed   int
		Expected []struct{ Wait *float64 }
	}
	if err := json.Unmarshal([]byte(s.must("advise", "builds", "-o", "json")), &a); err != nil || a.Needed != 1 || len(a.Expected) == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if text := s.must("show", "builds"); !strings.Contains(text, "grants/s, wait p50") {
		t.Error(text)
	}
	if text := s.must("ls", "-o", "wide"); !strings.Contains(text, "HOLD P99") {
		t.Error(text)
	}
	if r := s.run("advise", "none"); r.code == 0 || !strings.Contains(r.err, "none") {
		t.Errorf("%+v", r)
	}
}

// TestAdvise_ReportsWhatIsUnknown checks a store that is no server.
func TestAdvise_ReportsWhatIsUnknown(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.must("run", "builds", "-n", "4", "--", "true")
	if text := s.must("advise", "builds"); !strings.Contains(text, "only a server measures") {
		t.Error(text)
	}
}
