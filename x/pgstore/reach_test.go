package pgstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// blackhole makes a proxy drop everything in both directions.
var blackhole = storetest.Fault{LoseRequests: true, LoseReplies: true}

// TestStore_SwitchesToAnotherHostInTime drops everything on all connections to a host, and
// on new ones. The other host must be reached while leases are still valid.
func TestStore_SwitchesToAnotherHostInTime(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	for name, idle := range map[string]time.Duration{"connections were just used": 0, "connections were idle": longIdle + 100*time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dying, living := storetest.NewProxy(t, server.Address), storetest.NewProxy(t, server.Address)
			url := fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d&pool_max_conns=4", dying.Port, living.Port)
			store := openAt(t, url, Options{Schema: newSchema()})
			s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
			fill(t, store)
			time.Sleep(idle)
			dying.SetFault(blackhole)
			gone := time.Now()
			const trust = 10 * time.Second
			b := s.Next(sessiontest.Acquire(1, 1))
			for left := trust; ; left = trust - time.Since(gone) { // as a client that holds a lease does
				within, cancel := context.WithTimeout(ctx, left/3)
				_, err := store.Apply(within, "a", b)
				cancel()
				t.Logf("after %v: %v", time.Since(gone), err)
				if err == nil {
					dying.Cut() // otherwise closing the store waits for the connections
					return
				}
				if time.Since(gone) > trust*9/10 {
					t.Fatal("leases are lost")
				}
			}
		})
	}
}

// TestOpen_SkipsAHostThatDoesNotReply opens a store whose first host accepts connections
// and never replies.
func TestOpen_SkipsAHostThatDoesNotReply(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	nowhere := storetest.NewProxy(t, server.Address)
	nowhere.SetFault(blackhole)
	url := fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d", nowhere.Port, server.Port)
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, err := Open(within, url, Options{Schema: newSchema()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

// TestStore_LeavesAStandbyForThePrimary moves a host name from the standby to the primary.
// Open connections still lead to the standby.
func TestStore_LeavesAStandbyForThePrimary(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	name := storetest.NewProxy(t, standby.Address)
	url := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", name.Address)
	store := openAt(t, url, Options{})
	if _, err := store.Inspect(ctx, "a"); !isReadOnly(err) {
		t.Fatalf("Inspect on a standby: %v, want a read-only error", err)
	}
	name.Retarget(primary.Address)
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

// TestStore_RetriesOnIdleConnectionsThatTheServerClosed lets the server close the only
// connection by idle_session_timeout. The connection that follows has no such timeout, since
// a busy machine could let it expire before each attempt.
func TestStore_RetriesOnIdleConnectionsThatTheServerClosed(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	store := openAt(t, server.URL()+"&pool_max_conns=1&application_name=idler", Options{Schema: newSchema()})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	closeIdle := func() {
		c, err := store.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Exec(ctx, "SET idle_session_timeout = 50")
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			left, err := server.Psql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idler'")
			return err == nil && left == "0"
		})
	}
	for ticket := range protocol.Ticket(5) {
		closeIdle()
		s.Send(sessiontest.Release(s.Granted(1, sessiontest.Acquire(ticket+1, 1))[0]))
		waitFor(t, func() bool { return store.pool.Stat().IdleConns() == 1 })
	}
	closeIdle()
	if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Errorf("an operation that was not executed was not retried: %v", err)
	}
}

// fill makes the pool open all the connections that it may.
func fill(t testing.TB, s *Store) {
	t.Helper()
	for range s.pool.Config().MaxConns {
		c, err := s.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
}
