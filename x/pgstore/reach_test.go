package pgstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// silent is a network in which nobody hears of anything.
var silent = enginetest.Fault{LoseRequests: true, LoseReplies: true}

// TestAHostThatIsGoneWithoutAWord has all connections go nowhere, and new ones to
// the same host too. The other host is reached while holders still trust.
func TestAHostThatIsGoneWithoutAWord(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	for name, idle := range map[string]time.Duration{"of late": 0, "not used for a while": longIdle + 100*time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dying, living := enginetest.NewProxy(t, server.Address), enginetest.NewProxy(t, server.Address)
			url := fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d&pool_max_conns=4", dying.Port, living.Port)
			store := openAt(t, url, Options{Schema: newSchema()})
			s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
			fill(t, store)
			time.Sleep(idle)
			dying.SetFault(silent)
			gone := time.Now()
			const trust = 10 * time.Second
			b := s.Next(sessiontest.Acquire(1, 1))
			for left := trust; ; left = trust - time.Since(gone) { // as who holds a lease does
				within, cancel := context.WithTimeout(ctx, left/3)
				_, err := store.Apply(within, "a", b)
				cancel()
				t.Logf("after %v: %v", time.Since(gone), err)
				if err == nil {
					dying.Cut() // or it is waited for in the end
					return
				}
				if time.Since(gone) > trust*9/10 {
					t.Fatal("leases are lost")
				}
			}
		})
	}
}

// TestAHostThatDoesNotAnswer at first is passed over, though it takes connections.
func TestAHostThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	nowhere := enginetest.NewProxy(t, server.Address)
	nowhere.SetFault(silent)
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

// TestAStandbyIsLeftForThePrimary: its name leads to another server now, but not
// the connections there are.
func TestAStandbyIsLeftForThePrimary(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	name := enginetest.NewProxy(t, standby.Address)
	url := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", name.Address)
	store := openAt(t, url, Options{})
	if _, err := store.Inspect(ctx, "a"); !isReadOnly(err) {
		t.Fatalf("a standby has answered: %v", err)
	}
	name.Retarget(primary.Address)
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

// TestConnectionsThatWereNotUsedForLong are ended by a server that is told to.
func TestConnectionsThatWereNotUsedForLong(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	store := openAt(t, server.URL()+"&pool_max_conns=1&idle_session_timeout=250&application_name=idler", Options{Schema: newSchema()})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	for ticket := range protocol.Ticket(5) {
		waitFor(t, func() bool {
			left, err := server.Psql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idler'")
			return err == nil && left == "0"
		})
		s.Say(sessiontest.Release(s.Granted(1, sessiontest.Acquire(ticket+1, 1))[0]))
		waitFor(t, func() bool { return store.pool.Stat().IdleConns() == 1 })
	}
	waitFor(t, func() bool {
		left, err := server.Psql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idler'")
		return err == nil && left == "0"
	})
	if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Errorf("what was not done was not tried again: %v", err)
	}
}

// fill has the pool make all the connections it may.
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
