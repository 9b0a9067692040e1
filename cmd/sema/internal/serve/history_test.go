package serve

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
)

// TestServe_HistorySurvivesAKill checks that the samples and events of a server that was killed are
// there after its restart, that a Go client's holds are among them, and that the metrics count it.
func TestServe_HistorySurvivesAKill(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	p := serve(t, directory, "--listen", anywhere)
	store, err := fleet.OpenStore(t.Context(), "sema://"+strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := fleet.New(store)
	db, err := client.Semaphore("db", 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Acquire(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	p.want(200, "POST", "/v1/semaphores/db/drain")
	p.want(200, "POST", "/v1/semaphores/db/resume")
	past := func(p *process) (points, events []any) {
		a := p.want(200, "GET", "/v1/semaphores/db/history?range=15m")
		points, _ = a.body["points"].([]any)
		events, _ = a.body["events"].([]any)
		return points, events
	}
	p.waitFor("a sample with the permits of the client", func() bool {
		points, _ := past(p)
		return len(points) > 0 && points[len(points)-1].(map[string]any)["in_use"] == 3.0
	})
	before, _ := past(p)
	p.kill()
	p = serve(t, directory, "--listen", anywhere)
	points, events := past(p)
	if len(points) < len(before) || points[len(before)-1].(map[string]any)["in_use"] != 3.0 {
		t.Errorf("%d points after the kill, %d before: %v", len(points), len(before), points)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.(map[string]any)["kind"].(string))
	}
	if got := strings.Join(kinds, " "); got != "restart drain resume restart" {
		t.Errorf("events %s", got)
	}
	// The server learns from the store since when the lease is held.
	p.waitFor("the hold began before the restart", func() bool {
		times, _ := p.want(200, "GET", "/v1/semaphores").body["semaphores"].([]any)[0].(map[string]any)["times"].(map[string]any)
		held, _ := times["oldest_hold"].(float64)
		return held > 1
	})
}
