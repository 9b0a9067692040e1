package memstore_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	fleettest.Run(t, func(*testing.T) fleet.Store { return store })
}
