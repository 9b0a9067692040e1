package pgstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// newGuestSchema returns the name of a new schema on the server that the suite uses. That
// server may be a developer's own, so the schema is dropped when the test ends.
func newGuestSchema(t *testing.T) (schema string) {
	t.Helper()
	schema = newSchema()
	url := pgtest.Shared.URL(t)
	t.Cleanup(func() {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return schema
}

// A clocked store has a schema of its own, whose clock can be set.
type clocked struct {
	*Store
	t *testing.T
}

// openClocked replaces the one function in which the clock is read.
func openClocked(t *testing.T) fleet.Store {
	s := openAt(t, pgtest.Shared.URL(t), Options{Schema: newGuestSchema(t), Prefix: "here:"})
	in := s.options.Schema
	exec(t, s, "CREATE TABLE "+in+".stopped (at bigint)")
	exec(t, s, "CREATE OR REPLACE FUNCTION "+in+`.now_micros() RETURNS bigint LANGUAGE sql VOLATILE AS
		$$ SELECT coalesce((SELECT at FROM `+in+`.stopped), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) $$`)
	return clocked{s, t}
}

// SetClock implements [fleettest.Clocked].
func (c clocked) SetClock(at time.Time) {
	in := c.options.Schema
	if at.IsZero() {
		exec(c.t, c.Store, "DELETE FROM "+in+".stopped")
		return
	}
	exec(c.t, c.Store, "WITH gone AS (DELETE FROM "+in+".stopped) INSERT INTO "+in+".stopped VALUES ($1)", at.UnixMicro())
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	fleettest.Suite{Histories: *histories, Open: openClocked}.Run(t)
}

func TestStore_ConformsIfSharedAndByTheRealClock(t *testing.T) {
	t.Parallel()
	url, schema := pgtest.Shared.URL(t), newGuestSchema(t)
	fleettest.Suite{Histories: *histories, TTL: 400 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		return openAt(t, url, Options{Schema: schema})
	}}.Run(t)
}
