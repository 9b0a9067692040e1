package serve

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/x/server"
)

// TestServe_DemoIsBounded checks that the demonstration uses all of its semaphores, stays below the
// documented rate, and stops gracefully.
func TestServe_DemoIsBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--demo", "--listen", anywhere)
	if text := p.stdout.String(); !strings.Contains(text, "permits in a memory store, which ends with the server\n") || !strings.Contains(text, "nothing of it is real") {
		t.Errorf("announced: %s", text)
	}
	rates := func() map[string]float64 {
		found := map[string]float64{}
		all, _ := p.want(200, "GET", "/v1/semaphores").body["semaphores"].([]any)
		for _, one := range all {
			s := one.(map[string]any)
			if times, ok := s["times"].(map[string]any); ok {
				found[s["name"].(string)], _ = times["grants_per_second"].(float64)
			}
		}
		return found
	}
	p.waitFor("every semaphore is used", func() bool {
		found := rates()
		return !slices.ContainsFunc(demoLoads, func(l demoLoad) bool { return found[l.name] == 0 })
	})
	p.waitFor("programs that call the JSON API release their permits", func() bool {
		times, _ := p.want(200, "GET", "/v1/semaphores/api%2Fsearch").body["times"].(map[string]any)
		held, ok := times["hold_p50"].(float64)
		return ok && held < 5
	})
	var total float64
	for _, rate := range rates() {
		total += rate
	}
	if total > 200 {
		t.Errorf("%.0f acquires a second", total)
	}
}

// TestConfig_DemoNeedsNoToken checks that a demonstration is rejected where it could not call its own
// server.
func TestConfig_DemoNeedsNoToken(t *testing.T) {
	t.Parallel()
	c := Config{Demo: true}
	if err := c.checkDemo(); err != nil {
		t.Error(err)
	}
	c.Tokens = []server.Token{{Name: "ops"}}
	if err := c.checkDemo(); err == nil || !strings.Contains(err.Error(), "--demo") {
		t.Error(err)
	}
}

// TestPause_EndsWithTheContext checks that workers stop at once.
func TestPause_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	if pause(ctx, time.Hour) {
		t.Error("it has not ended")
	}
}
