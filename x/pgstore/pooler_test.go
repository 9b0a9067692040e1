package pgstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestStore_WorksBehindATransactionPooler runs the suite through PgBouncer.
func TestStore_WorksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	url := pgtest.StartPgBouncer(t, server).URL()
	schema := newSchema()
	open := func(t *testing.T) fleet.Store {
		return openAt(t, url, Options{Schema: schema, Poll: 20 * time.Millisecond})
	}
	store := open(t).(*Store)
	if mode := store.pool.Config().ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeExec {
		t.Errorf("the pooler was not detected: mode %v", mode)
	}
	t.Run("conforms", func(t *testing.T) {
		fleettest.Suite{Histories: max(4, *histories/10), TTL: 400 * time.Millisecond, Open: open}.Run(t)
	})
	t.Run("listens at the server itself", func(t *testing.T) {
		t.Parallel()
		direct := openAt(t, url, Options{Schema: newSchema(), Listen: server.Address, Poll: time.Hour})
		notified := listenAs(t, direct, "b")
		r := newRelay(t, direct, "x")
		ticket := r.ready(t, notified)
		r.handOver(ticket, func() { wantNotification(t, notified, "x") })
	})
}
