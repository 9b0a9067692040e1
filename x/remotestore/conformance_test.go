package remotestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/sqlitestore"
)

// A clocked store is a client of a service whose store is in memory, with a clock that
// can be set.
type clocked struct {
	*Store
	*fleettest.Clock
}

func TestStore_ConformsOverMemory(t *testing.T) {
	t.Parallel()
	fleettest.Suite{Histories: histories, Open: func(t *testing.T) fleet.Store {
		clock := &fleettest.Clock{}
		server := serve(t, memstore.NewWithClock(clock.Now), serving{})
		return clocked{openAt(t, server.address), clock}
	}}.Run(t)
}

// TestStore_ConformsOverSQLite runs the suite with two servers of one store. The store
// ends sessions by itself, so the TTL has to be longer than any pause of this process.
func TestStore_ConformsOverSQLite(t *testing.T) {
	t.Parallel()
	backend, err := sqlitestore.Open(filepath.Join(t.TempDir(), "fleet.db"), sqlitestore.Options{Normal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close() })
	one, other := serve(t, backend, serving{}), serve(t, backend, serving{})
	fleettest.Suite{Histories: histories / 3, TTL: 6 * time.Second, Open: func(t *testing.T) fleet.Store { return openAt(t, one.address, other.address) }}.Run(t)
}
