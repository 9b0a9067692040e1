package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// Replicas that use different modes are reported to the one that comes later.
func TestSemaphore_ReportsAnotherMode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second fleet.Mode
		want          bool
	}{
		"exact and pooled": {fleet.Exact, fleet.Pooled, true},
		"pooled and exact": {fleet.Pooled, fleet.Exact, true},
		"exact":            {fleet.Exact, fleet.Exact, false},
		"pooled":           {fleet.Pooled, fleet.Pooled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, _ := join(t, store)
				b, _ := join(t, store)
				held := mustAcquire(t, semaphore(t, a, fleet.Options{Capacity: 10, Mode: c.first}), 1)
				var reports []string
				s := semaphore(t, b, fleet.Options{Capacity: 10, Mode: c.second, Observer: sema.ObserverFunc(func(e sema.Event) {
					if e.Kind == sema.Mismatched {
						reports = append(reports, e.Report)
					}
				})})
				p := mustAcquire(t, s, 1)
				synctest.Wait()
				if got := len(reports) == 1 && strings.Contains(reports[0], "use one mode"); got != c.want || len(reports) > 1 {
					t.Errorf("reports: %q", reports)
				}
				p.Release()
				held.Release()
			})
		})
	}
}
