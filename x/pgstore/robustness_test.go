package pgstore

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// TestStore_QuotesTheSchema executes all operations in a schema whose name has to be quoted.
func TestStore_QuotesTheSchema(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	schema := `Größe "x" o'y; --.$$ ` + newSchema()[:12]
	database := server.URL() + "&sema_schema=" + url.QueryEscape(schema)
	if err := Migrate(ctx, database); err != nil {
		t.Fatal(err)
	}
	store := openIn(t, schema, Options{Unmigrated: true})
	notified := listenAs(t, store, "b")
	r := newRelay(t, store, "x")
	r.handOver(r.ready(t, notified), func() { wantNotification(t, notified, "x") })
	if page, err := store.List(ctx, protocol.ListQuery{}); err != nil || len(page) != 1 {
		t.Error(page, err)
	}
	snapshot, err := store.Inspect(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Config.Capacity++
	if err := store.Administer(ctx, "x", fleet.Command{Configure: &snapshot.Config}); err != nil {
		t.Error(err)
	}
	lease := r.a.Granted(1, sessiontest.Acquire(1000, 1))[0]
	if err := store.Administer(ctx, "x", fleet.Command{Revoke: &fleet.Revocation{Lease: lease}}); err != nil {
		t.Error(err)
	}
	if err := store.Administer(ctx, "x", fleet.Command{Delete: true}); err != nil {
		t.Error(err)
	}
}

// TestStore_IgnoresTheSearchPath sets a search path to a schema that has the same names.
func TestStore_IgnoresTheSearchPath(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	trap, schema := newSchema(), newSchema()
	openIn(t, trap, Options{}) // creates all of them
	mustPsql(t, server, "CREATE FUNCTION "+trap+".pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$")
	for _, path := range []string{trap, "", trap + ", pg_catalog"} {
		store := openAt(t, server.URL()+"&search_path="+url.QueryEscape(path), Options{Schema: schema})
		name := "of " + path
		a, b := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		lease := a.Granted(1, sessiontest.Acquire(1, 1))[0]
		b.Send(sessiontest.Acquire(1, 1))
		a.Send(sessiontest.Release(lease))
		b.Granted(1)
		if n := mustPsql(t, server, "SELECT count(*) FROM "+trap+".semaphore"); n != "0" {
			t.Errorf("search_path %q: %s semaphores are in the wrong schema", path, n)
		}
	}
}

// TestStore_SurvivesTerminatedBackends terminates backends during batches.
func TestStore_SurvivesTerminatedBackends(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	schema := newSchema()
	database := server.URL() + "&application_name=" + schema
	var r section
	clients := []*fleet.Client{fleet.New(openAt(t, database, Options{Schema: schema})), fleet.New(openAt(t, database, Options{Schema: schema}))}
	end := contend(t, &r, clients...)
	observer := openIn(t, schema, Options{})
	terminated := int64(0)
	for deadline := time.Now().Add(2 * time.Minute); terminated < 40; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d backends were terminated during a batch", terminated)
		}
		terminated += count(t, observer, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+schema+"' AND state = 'active') x")
	}
	wantProgress(t, &r)
	end()
	wantEmpty(t, observer, &r, clients...)
}

// TestRedirect_KeepsTheTLSMode redirects to the server behind a pooler. Its certificate is
// not that of the pooler, or it has none.
func TestRedirect_KeepsTheTLSMode(t *testing.T) {
	t.Parallel()
	for mode, ways := range map[string]string{"verify-full": "db", "require": "tls", "prefer": "tls plain", "disable": "plain"} {
		parsed, err := pgxpool.ParseConfig("postgres://u@pooler:6432,other:6432/d?sslmode=" + mode)
		if err != nil {
			t.Fatal(err)
		}
		config := parsed.ConnConfig
		if err := redirect(config, "db:5432"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, way := range append([]*pgx.ConnConfig{config}, fallbacks(config)...) {
			if way.Host != "db" || way.Port != 5432 {
				t.Errorf("%s: it connects to %s:%d", mode, way.Host, way.Port)
			}
			switch {
			case way.TLSConfig == nil:
				got = append(got, "plain")
			case way.TLSConfig.InsecureSkipVerify:
				got = append(got, "tls")
			default:
				got = append(got, way.TLSConfig.ServerName)
			}
		}
		if strings.Join(got, " ") != ways {
			t.Errorf("%s: %v, want %s", mode, got, ways)
		}
	}
}

func fallbacks(config *pgx.ConnConfig) (all []*pgx.ConnConfig) {
	for _, f := range config.Fallbacks {
		way := config.Copy()
		way.Host, way.Port, way.TLSConfig = f.Host, f.Port, f.TLSConfig
		all = append(all, way)
	}
	return all
}

// TestListen_ChecksThroughThePoolWithoutAListener listens at an address where there is no
// server.
func TestListen_ChecksThroughThePoolWithoutAListener(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Listen: "127.0.0.1:1"})
	notified := listenAs(t, store, "b")
	r := newRelay(t, store, "x")
	lease := r.a.Granted(1, sessiontest.Acquire(1, 1))[0]
	r.b.Send(sessiontest.Acquire(1, 1))
	r.a.Send(sessiontest.Release(lease))
	wantNotification(t, notified, "x")
}

// TestListener_DetectsAnUnresponsiveConnection runs a check on a connection that does not
// reply any more: it fails.
func TestListener_DetectsAnUnresponsiveConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	w := storetest.NewProxy(t, server.Address)
	store := openAt(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", w.Address), Options{Schema: newSchema()})
	c, err := pgx.ConnectConfig(ctx, store.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.Cut()
		c.Close(ctx)
		<-c.PgConn().CleanupDone()
	}()
	l := &listener{store: store, passed: map[string]map[int64]int64{}}
	if err := l.check(ctx, c, []string{"i"}); err != nil {
		t.Fatal(err)
	}
	w.SetFault(blackhole)
	began := time.Now()
	if err := l.check(ctx, c, []string{"i"}); err == nil || time.Since(began) > checkWithin+time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
