package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// A section is a critical section. It counts the goroutines that are in it.
type section struct {
	in, most, entries atomic.Int64
}

func (r *section) enter(d time.Duration) {
	n := r.in.Add(1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
	r.entries.Add(1)
	time.Sleep(d)
	r.in.Add(-1)
}

// contend starts goroutines that enter a section through the clients, until end is called.
func contend(t *testing.T, r *section, clients ...*fleet.Client) (end func()) {
	t.Helper()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	end = sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(end)
	for _, c := range clients {
		s, err := c.Semaphore("section", 4, fleet.TTL(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					p, err := s.Acquire(ctx, 1)
					if err != nil {
						t.Error(err)
						return
					}
					r.enter(time.Millisecond)
					p.Release()
				}
			})
		}
	}
	return end
}

// wantProgress fails the test unless goroutines enter the section.
func wantProgress(t *testing.T, r *section) {
	t.Helper()
	before := r.entries.Load()
	for deadline := time.Now().Add(60 * time.Second); r.entries.Load() < before+50; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d entries since", r.entries.Load()-before)
		}
	}
}

// wantEmpty closes the clients. Then no lease and no ticket may be left, and at no time
// may more goroutines have been in the section than there are permits.
func wantEmpty(t *testing.T, s *Store, r *section, clients ...*fleet.Client) {
	t.Helper()
	for _, c := range clients {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if most := r.most.Load(); most > 4 {
		t.Errorf("%d were in the section at a time, want at most 4", most)
	}
	if leases, queue := sessiontest.Held(t, s, "section"); len(leases)+len(queue) > 0 {
		t.Errorf("leases %v, tickets %v are left", leases, queue)
	}
	if err := checkSums(s); err != nil {
		t.Error(err)
	}
}

func TestStore_SurvivesRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	url := server.URL()
	var r section
	clients := []*fleet.Client{fleet.New(openAt(t, url, Options{})), fleet.New(openAt(t, url, Options{}))}
	end := contend(t, &r, clients...)
	for range 3 {
		wantProgress(t, &r)
		server.StopAtOnce()
		time.Sleep(100 * time.Millisecond)
		server.Restart()
	}
	wantProgress(t, &r)
	end()
	observer := openAt(t, url, Options{})
	wantEmpty(t, observer, &r, clients...)
}

func TestStore_SurvivesCutConnectionsAndLostReplies(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	p := storetest.NewProxy(t, server.Address)
	u := server.URLOf("postgres", "postgres")
	u.Host = p.Address
	schema := newSchema()
	var r section
	clients := []*fleet.Client{fleet.New(openAt(t, u.String(), Options{Schema: schema})), fleet.New(openAt(t, u.String(), Options{Schema: schema}))}
	end := contend(t, &r, clients...)
	for i := range 12 {
		wantProgress(t, &r)
		if i%2 == 0 {
			p.Cut()
			continue
		}
		p.SetFault(storetest.Fault{CutReplies: true})
		time.Sleep(20 * time.Millisecond)
		p.Heal()
	}
	wantProgress(t, &r)
	end()
	observer := openIn(t, schema, Options{})
	wantEmpty(t, observer, &r, clients...)
}

func TestApply_IsAppliedOnceIfTheReplyIsLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	p := storetest.NewProxy(t, server.Address)
	u := server.URLOf("postgres", "postgres")
	u.Host = p.Address
	schema := newSchema()
	direct := openIn(t, schema, Options{})
	s := sessiontest.Begin(t, openAt(t, u.String(), Options{Schema: schema}), "a", protocol.Config{Capacity: 10})
	s.Send()
	p.SetFault(storetest.Fault{CutReplies: true})
	b := s.Next(sessiontest.Acquire(1, 3))
	if _, err := s.Store.Apply(ctx, "a", b); !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the server may still execute it
		if leases, _ := sessiontest.Held(t, direct, "a"); len(leases) == 1 {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the server has not received the batch")
		}
	}
	p.Heal()
	for range 3 {
		r, err := s.Store.Apply(ctx, "a", b)
		if err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if leases, _ := sessiontest.Held(t, direct, "a"); len(leases) != 1 {
		t.Errorf("leases %v, want one", leases)
	}
}

// TestApply_IsAppliedOnceIfTheStoreRetries terminates the backends of idle connections, so
// that the store itself sends the batch again.
func TestApply_IsAppliedOnceIfTheStoreRetries(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 10})
	for i := range protocol.Ticket(20) {
		exec(t, store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'idle' AND query LIKE '%'||$1||'%'", store.options.Schema)
		r, err := store.Apply(ctx, "a", s.Next(sessiontest.Acquire(i+1, 1)))
		if err != nil || r.Status > protocol.Repeated {
			t.Fatalf("%+v, %v", r, err)
		}
		s.Receive(r)
		s.Send(sessiontest.Release(r.Results[0].Lease))
	}
	sessiontest.WantHeld(t, store, "a")
}

func TestStore_ReportsAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	primary := openAt(t, server.URL(), Options{})
	sessiontest.Begin(t, primary, "a", protocol.Config{Capacity: 1})
	standby := server.Standby(t)
	waitFor(t, func() bool {
		s, err := Open(ctx, standby.URL(), Options{})
		if err == nil {
			s.Close()
		}
		return err == nil
	})
	s := openAt(t, standby.URL(), Options{})
	_, err := s.Inspect(ctx, "a")
	if !errors.Is(err, sema.ErrUnavailable) || !strings.Contains(err.Error(), "the server is a standby") || !strings.Contains(err.Error(), "; name the primary") {
		t.Error(err)
	}
	if strings.Contains(err.Error(), "default_transaction_read_only") {
		t.Errorf("advice for a server that is no standby: %v", err)
	}
	both := fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d&target_session_attrs=read-write", standby.Port, server.Port)
	sessiontest.Begin(t, openAt(t, both, Options{}), "a", protocol.Config{Capacity: 1}).Granted(1, sessiontest.Acquire(1, 1))
}

func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition is not met within a minute")
		}
	}
}

// TestStore_HonoursTimeouts locks the semaphore's row in another transaction.
func TestStore_HonoursTimeouts(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	store := openIn(t, schema, Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	tx, err := store.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SELECT FROM "+schema+".semaphore FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	url := pgtest.Shared.Server(t).URL()
	b := s.Next(sessiontest.Acquire(1, 1))
	for setting, want := range map[string]string{"statement_timeout=50": "statement_timeout", "lock_timeout=50": "lock_timeout"} {
		_, err := openAt(t, url+"&"+setting, Options{Schema: schema}).Apply(ctx, "a", b)
		if !errors.Is(err, sema.ErrUnavailable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%s: %v", setting, err)
		}
	}
	within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := store.Apply(within, "a", b); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Apply(ctx, "a", b); err != nil || len(r.Results) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestApply_ReadsTheClockAfterTheLock makes a batch wait for the row. The batch has the
// time at which it locks the row, not that at which its transaction began.
func TestApply_ReadsTheClockAfterTheLock(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	tx, err := store.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SELECT FROM "+store.options.Schema+".semaphore FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	applied := make(chan error)
	b := s.Next(sessiontest.Acquire(1, 1))
	go func() {
		_, err := store.Apply(ctx, "a", b)
		applied <- err
	}()
	waitFor(t, func() bool {
		return count(t, store, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+store.options.Schema+"%'") > 0
	})
	time.Sleep(20 * time.Millisecond)
	var freed time.Time
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&freed); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	snapshot, err := store.Inspect(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if since := time.UnixMicro(int64(snapshot.Leases[0].Since)); since.Before(freed) {
		t.Errorf("leased at %v, before the row was free at %v", since, freed)
	}
}

func TestStore_ReportsADroppedSchema(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	exec(t, store, "DROP SCHEMA "+store.options.Schema+" CASCADE")
	if _, err := store.Inspect(ctx, "a"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "run sema migrate") {
		t.Error(err)
	}
}

// TestStore_SupportsRollingUpgrades uses one semaphore from clients of two versions of the
// protocol, and then raises its version. After that a client is rejected only if it is
// older than the version before.
func TestStore_SupportsRollingUpgrades(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	old := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	openBy := func(version uint32) (protocol.Session, error) {
		id, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 2, TTL: sessiontest.TTL, Protocol: version}, sessiontest.Opener("new"))
		return id, err
	}
	id, err := openBy(protocol.Version + 1)
	if err != nil {
		t.Fatal(err)
	}
	young := sessiontest.Opened(t, store, "a", id)
	lease := young.Granted(1, sessiontest.Acquire(1, 1))[0]
	old.Granted(1, sessiontest.Acquire(1, 1))
	old.Send(sessiontest.Acquire(2, 1), protocol.Op{Verb: 77, Ticket: 3})
	young.Send(sessiontest.Release(lease))
	old.Granted(1)
	for range 2 {
		snapshot, err := store.Inspect(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Config.Protocol++
		if err := store.Administer(ctx, "a", fleet.Command{Configure: &snapshot.Config}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openBy(protocol.Version); !errors.Is(err, protocol.ErrVersion) {
		t.Error(err)
	}
	old.Send() // an open session continues
	if _, err := openBy(protocol.Version + 1); err != nil {
		t.Error(err)
	}
}
