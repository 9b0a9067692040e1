package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// TestTimesOf_Percentiles checks the medians and the 99th percentiles of waits and holds.
func TestTimesOf_Percentiles(t *testing.T) {
	t.Parallel()
	of := func(d time.Duration) *scope.Duration { return new(scope.Duration(d)) }
	text := timesOf(scope.State{Times: &scope.Times{
		WaitP50: of(2 * time.Millisecond), WaitP99: of(30 * time.Millisecond), HoldP50: of(400 * time.Millisecond), HoldP99: of(5 * time.Second),
	}})
	if want := "wait p50 2ms p99 30ms  hold p50 400ms p99 5s"; !strings.Contains(text, want) {
		t.Errorf("no %q in %q", want, text)
	}
}
