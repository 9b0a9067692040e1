package fleettest_test

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
)

// TestMain disables the shrinking and saving of failures by rapid: failures are expected here.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "100ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// A fault is one defect, and the check that has to find it.
type fault struct {
	name     string
	check    string
	newStore func() *faultyStore
}

var faults = slices.Concat(notifyFaults, countFaults, ownerFaults, lostFaults, batchFaults, queueFaults, fenceFaults, adminFaults, timeFaults)

// run runs a check with a store of its own.
func run(ctx context.Context, c fleettest.Check, s *faultyStore) error {
	s.Clock = &fleettest.Clock{}
	s.semaphores, s.tombstones, s.listeners = map[string]*protocol.State{}, map[string]protocol.Seq{}, map[string]chan string{}
	return c.Run(ctx, s)
}

func TestSuite_FailsFaultyStores(t *testing.T) {
	t.Parallel()
	checks := map[string]fleettest.Check{}
	for _, c := range (fleettest.Suite{}).Checks() {
		checks[c.Name] = c
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c, ok := checks[f.check]
			if !ok {
				t.Fatalf("no check %q", f.check)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // some defects block a check
			defer cancel()
			err := run(ctx, c, f.newStore())
			if err == nil {
				t.Fatalf("not found by %q", f.check)
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Log(first)
		})
	}
}

func TestSuite_PassesCorrectStore(t *testing.T) {
	// Without a fault no check may fail, otherwise the test above proves nothing.
	t.Parallel()
	var wg sync.WaitGroup
	for _, c := range (fleettest.Suite{}).Checks() {
		wg.Go(func() {
			if err := run(t.Context(), c, &faultyStore{}); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		})
	}
	wg.Wait()
}
