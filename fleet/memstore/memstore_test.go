package memstore_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A clocked store has a clock that the test sets.
type clocked struct {
	*memstore.Store
	*fleettest.Clock
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	fleettest.Run(t, func(*testing.T) fleet.Store {
		clock := &fleettest.Clock{}
		return clocked{memstore.NewWithClock(clock.Now), clock}
	})
}

func TestStore_ConformsWhenSharedWithTheRealClock(t *testing.T) {
	t.Parallel()
	shared := memstore.New()
	fleettest.Suite{Open: func(*testing.T) fleet.Store { return shared }, Histories: 200}.Run(t)
}

// TestStore_KeepsNothingOfDeletedSemaphores is not parallel: it measures the heap.
func TestStore_KeepsNothingOfDeletedSemaphores(t *testing.T) {
	store := memstore.NewWithClock((&fleettest.Clock{}).Now)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const names, most = 20_000, 1 << 20
	for i := range names {
		name := strings.Repeat("n", 150) + fmt.Sprint(i)
		by := protocol.Opener{Client: protocol.NewClient("test"), Owner: protocol.Owner{Key: protocol.NewKey()}}
		if _, _, err := store.Open(t.Context(), name, protocol.Config{Protocol: protocol.Version, Capacity: 1, TTL: 1_000_000}, by); err != nil {
			t.Fatal(err)
		}
		if err := store.Administer(t.Context(), name, fleet.Command{Delete: true}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := heap() - before; kept > most {
		t.Errorf("%d bytes are kept of %d deleted semaphores", kept, names)
	}
	runtime.KeepAlive(store)
}
