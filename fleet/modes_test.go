package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// TestSemaphore_ReportsAnotherMode checks that the client which starts later reports different
// modes.
func TestSemaphore_ReportsAnotherMode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second fleet.Mode
		want          bool
	}{
		"exact and pooled": {fleet.ModeExact, fleet.ModePooled, true},
		"pooled and exact": {fleet.ModePooled, fleet.ModeExact, true},
		"exact":            {fleet.ModeExact, fleet.ModeExact, false},
		"pooled":           {fleet.ModePooled, fleet.ModePooled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				a, _ := newClient(t, store)
				b, _ := newClient(t, store)
				held := mustAcquire(t, semaphore(t, a, of(10, c.first)), 1)
				var reports []string
				s := semaphore(t, b, of(10, c.second, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
					if e.Kind == sema.EventMismatched {
						reports = append(reports, e.Report)
					}
				}))))
				p := mustAcquire(t, s, 1)
				synctest.Wait()
				if got := len(reports) == 1 && strings.Contains(reports[0], "from block to block"); got != c.want || len(reports) > 1 {
					t.Errorf("reports: %q", reports)
				}
				p.Release()
				held.Release()
			})
		})
	}
}

// TestSemaphore_ReportsAnotherModeOfReplicasThatStartTogether checks two clients that hold nothing
// at their first comparison. The client that waits for the other compares again.
func TestSemaphore_ReportsAnotherModeOfReplicasThatStartTogether(t *testing.T) {
	t.Parallel()
	for name, modes := range map[string][2]fleet.Mode{
		"pooled waits for exact": {fleet.ModeExact, fleet.ModePooled},
		"exact waits for pooled": {fleet.ModePooled, fleet.ModeExact},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				reports := make(map[string]int)
				var both [2]*fleet.Semaphore
				for i, mode := range modes {
					c, _ := newClient(t, store)
					both[i] = semaphore(t, c, of(1, mode, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
						if e.Kind == sema.EventMismatched {
							reports[e.Report]++
						}
					}))))
					_, err := both[i].TryAcquire(t.Context(), 2) // opens the session, and holds nothing
					wantErr(t, err, sema.ErrTooLarge)
				}
				synctest.Wait()
				if len(reports) > 0 {
					t.Fatalf("reports of clients that hold nothing: %v", reports)
				}
				time.Sleep(time.Minute / 2)
				held := mustAcquire(t, both[0], 1)
				go func() {
					time.Sleep(20 * time.Second)
					held.Release()
				}()
				for range 3 {
					mustAcquire(t, both[1], 1).Release()
				}
				synctest.Wait()
				if len(reports) != 1 {
					t.Errorf("reports: %v", reports)
				}
				for report, n := range reports {
					if n != 1 || !strings.Contains(report, "from block to block") {
						t.Errorf("%d times: %q", n, report)
					}
				}
			})
		})
	}
}
