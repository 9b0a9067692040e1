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

// Faults are found on purpose here: rapid need neither shorten nor keep them.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "100ms"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// A fault is one thing that is wrong, and the check that has to catch it.
type fault struct {
	name   string
	caught string
	make   func() *sick
}

var faults = slices.Concat(wakeFaults, countFaults, ownerFaults, lostFaults, batchFaults, lineFaults, fenceFaults, adminFaults, timeFaults)

// run has a check look at a store with an engine of its own.
func run(c fleettest.Check, s *sick) error {
	s.Clock = &fleettest.Clock{}
	s.semaphores, s.graves, s.listeners = map[string]*protocol.State{}, map[string]protocol.Seq{}, map[string]chan string{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Run(ctx, s)
}

func TestFaultyStoresAreCaught(t *testing.T) {
	t.Parallel()
	checks := map[string]fleettest.Check{}
	for _, c := range (fleettest.Suite{}).Checks() {
		checks[c.Name] = c
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c, ok := checks[f.caught]
			if !ok {
				t.Fatalf("there is no check %q", f.caught)
			}
			err := run(c, f.make())
			if err == nil {
				t.Fatalf("not caught by %q", f.caught)
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Log(first)
		})
	}
}

// That a fault is caught means something only if its absence is not.
func TestTheHealthyAreNotCaught(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, c := range (fleettest.Suite{}).Checks() {
		wg.Go(func() {
			if err := run(c, &sick{}); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		})
	}
	wg.Wait()
}
