package sqlitestore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
)

// A clocked store has its own file and a clock that can be set.
type clocked struct {
	*Store
	*fleettest.Clock
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	fleettest.Suite{Histories: histories, Open: func(t *testing.T) fleet.Store {
		store := openAt(t, newFile(t), Options{Prefix: "here:", Normal: true})
		clock := &fleettest.Clock{}
		store.useClock(func() protocol.Micros { return protocol.Micros(clock.Now().UnixMicro()) })
		return clocked{store, clock}
	}}.Run(t)
}

func TestStore_ConformsIfSharedWithRealClock(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{}) // from the first check to the last
	// The store must not tick by itself: then a session would expire when this process is
	// slow, instead of when a script advances the time.
	store.useClock(func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) })
	fleettest.Suite{Histories: histories / 3, Open: func(t *testing.T) fleet.Store { return openAt(t, path, Options{}) }}.Run(t)
}
