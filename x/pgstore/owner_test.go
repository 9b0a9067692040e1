package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// actingFor is a store as a server uses it for a principal that it has authenticated.
type actingFor struct {
	*Store
	principal string
}

func (a actingFor) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	by.Owner.Principal = a.principal
	return a.Store.Open(ctx, name, c, by)
}

func (a actingFor) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	b.Owner.Principal = a.principal
	return a.Store.Apply(ctx, name, b)
}

// TestViews_HaveNoKeys reads the views as a role that may read only them. They have
// principals and no keys.
func TestViews_HaveNoKeys(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, actingFor{store, "token:ci"}, "jobs", protocol.Config{Capacity: 1})
	s.Granted(1, sessiontest.Acquire(1, 1))
	s.Send(sessiontest.Acquire(2, 1))
	in := store.options.Schema
	reader := in + "_reader"
	for _, statement := range []string{
		"CREATE ROLE " + reader + " LOGIN", "GRANT USAGE ON SCHEMA " + in + " TO " + reader,
		fmt.Sprintf("GRANT SELECT ON %[1]s.semaphores, %[1]s.permits, %[1]s.waiters, %[1]s.sessions TO %[2]s", in, reader),
	} {
		mustPsql(t, server, statement)
	}
	c, err := pgx.Connect(ctx, server.URLOf(reader, "postgres").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, view := range []string{"semaphores", "permits", "waiters", "sessions"} {
		var row string
		if err := c.QueryRow(ctx, "SELECT row_to_json(x) FROM "+in+"."+view+" x").Scan(&row); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(row, "-", ""), sessiontest.Owner.Key.Hex()) {
			t.Errorf("%s shows the key: %s", view, row)
		}
		if view != "semaphores" && !strings.Contains(row, `"principal":"token:ci"`) {
			t.Errorf("%s does not show the principal: %s", view, row)
		}
	}
	for _, statement := range []string{"SELECT key FROM " + in + ".session", "SELECT " + in + ".inspect('jobs')"} {
		if _, err := c.Exec(ctx, statement); codeOf(err) != "42501" {
			t.Errorf("%s: %v, want permission denied", statement, err)
		}
	}
}
