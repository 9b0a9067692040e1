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

// A clocked store is a client of a service whose engine is in memory, with a clock
// that can be set.
type clocked struct {
	*Store
	*fleettest.Clock
}

func TestConformsInFrontOfMemory(t *testing.T) {
	t.Parallel()
	fleettest.Suite{Histories: histories, Open: func(t *testing.T) fleet.Store {
		clock := &fleettest.Clock{}
		server := serve(t, memstore.NewWithClock(clock.Now), serving{})
		return clocked{openAt(t, server.address), clock}
	}}.Run(t)
}

// TestConformsInFrontOfSQLite has two servers of one store. The store ends sessions by
// itself, so that a TTL has to be longer than this process is ever kept waiting.
func TestConformsInFrontOfSQLite(t *testing.T) {
	t.Parallel()
	engine, err := sqlitestore.Open(filepath.Join(t.TempDir(), "fleet.db"), sqlitestore.Options{Normal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	one, other := serve(t, engine, serving{}), serve(t, engine, serving{})
	fleettest.Suite{Histories: histories / 3, TTL: 6 * time.Second, Open: func(t *testing.T) fleet.Store { return openAt(t, one.address, other.address) }}.Run(t)
}
