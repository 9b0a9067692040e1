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
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestASchemaWithAnyName does all there is to do in one whose name has to be quoted.
func TestASchemaWithAnyName(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	schema := `Größe "x" o'y; --.$$ ` + newSchema()[:12]
	database := server.URL() + "&sema_schema=" + url.QueryEscape(schema)
	if err := Migrate(ctx, database); err != nil {
		t.Fatal(err)
	}
	store := openIn(t, schema, Options{Unmigrated: true})
	heard := hear(t, store, "b")
	r := newRelay(t, store, "x")
	r.hand(r.ready(t, heard), func() { wantHint(t, heard, "x") })
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

// TestASearchPathLeadsNobodyAstray, though what it leads to has the same names.
func TestASearchPathLeadsNobodyAstray(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	trap, schema := newSchema(), newSchema()
	openIn(t, trap, Options{}) // which has them all
	ask(t, server, "CREATE FUNCTION "+trap+".pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$")
	for _, path := range []string{trap, "", trap + ", pg_catalog"} {
		store := openAt(t, server.URL()+"&search_path="+url.QueryEscape(path), Options{Schema: schema})
		name := "of " + path
		a, b := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1}), sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		lease := a.Granted(1, sessiontest.Acquire(1, 1))[0]
		b.Say(sessiontest.Acquire(1, 1))
		a.Say(sessiontest.Release(lease))
		b.Granted(1)
		if n := ask(t, server, "SELECT count(*) FROM "+trap+".semaphore"); n != "0" {
			t.Errorf("search_path %q: %s semaphores are elsewhere", path, n)
		}
	}
}

// TestBackendsAreTerminatedInTheMiddleOfBatches, again and again.
func TestBackendsAreTerminatedInTheMiddleOfBatches(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	schema := newSchema()
	database := server.URL() + "&application_name=" + schema
	var r room
	clients := []*fleet.Client{fleet.New(openAt(t, database, Options{Schema: schema})), fleet.New(openAt(t, database, Options{Schema: schema}))}
	end := crowd(t, &r, clients...)
	look := openIn(t, schema, Options{})
	terminated := int64(0)
	for deadline := time.Now().Add(2 * time.Minute); terminated < 40; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d were met in the middle", terminated)
		}
		terminated += count(t, look, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+schema+"' AND state = 'active') x")
	}
	wantProgress(t, &r)
	end()
	wantEmpty(t, look, &r, clients...)
}

// TestTheListenerGoesToTheServerItself, of which the certificate is not that of
// the pooler, or which has none.
func TestTheListenerGoesToTheServerItself(t *testing.T) {
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
				t.Errorf("%s: it goes to %s:%d", mode, way.Host, way.Port)
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

// TestHintsComeWithoutAListener: there is nobody where it is to listen.
func TestHintsComeWithoutAListener(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{Listen: "127.0.0.1:1"})
	heard := hear(t, store, "b")
	r := newRelay(t, store, "x")
	lease := r.a.Granted(1, sessiontest.Acquire(1, 1))[0]
	r.b.Say(sessiontest.Acquire(1, 1))
	r.a.Say(sessiontest.Release(lease))
	wantHint(t, heard, "x")
}

// TestAListenerThatIsDeadWithoutAWord is found out when it looks.
func TestAListenerThatIsDeadWithoutAWord(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	w := enginetest.NewProxy(t, server.Address)
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
	w.SetFault(silent)
	began := time.Now()
	if err := l.check(ctx, c, []string{"i"}); err == nil || time.Since(began) > checkWithin+time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
