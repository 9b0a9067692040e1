package pgstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
)

// TestBehindATransactionPooler does everything through PgBouncer.
func TestBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	url := pgtest.StartPgBouncer(t, server).URL()
	schema := newSchema()
	open := func(t *testing.T) fleet.Store {
		return openAt(t, url, Options{Schema: schema, Poll: 20 * time.Millisecond})
	}
	store := open(t).(*Store)
	if mode := store.pool.Config().ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeExec {
		t.Errorf("the pooler was not noticed: mode %v", mode)
	}
	t.Run("conforms", func(t *testing.T) {
		fleettest.Suite{Histories: max(4, *histories/10), TTL: 400 * time.Millisecond, Open: open}.Run(t)
	})
	t.Run("hears from the server itself", func(t *testing.T) {
		t.Parallel()
		direct := openAt(t, url, Options{Schema: newSchema(), Listen: server.Address, Poll: time.Hour})
		heard := hear(t, direct, "b")
		r := newRelay(t, direct, "x")
		ticket := r.ready(t, heard)
		r.hand(ticket, func() { wantHint(t, heard, "x") })
	})
}
