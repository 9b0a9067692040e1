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
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// A room is what a semaphore is for: it counts who is in.
type room struct {
	in, most, visits atomic.Int64
}

func (r *room) visit(d time.Duration) {
	n := r.in.Add(1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
	r.visits.Add(1)
	time.Sleep(d)
	r.in.Add(-1)
}

// crowd has goroutines visit a room through some clients, until it is ended.
func crowd(t *testing.T, r *room, clients ...*fleet.Client) (end func()) {
	t.Helper()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	end = sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(end)
	for _, c := range clients {
		s, err := c.Semaphore("room", 4, fleet.TTL(6*time.Second))
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
					r.visit(time.Millisecond)
					p.Release()
				}
			})
		}
	}
	return end
}

// wantProgress fails unless somebody gets in.
func wantProgress(t *testing.T, r *room) {
	t.Helper()
	before := r.visits.Load()
	for deadline := time.Now().Add(60 * time.Second); r.visits.Load() < before+50; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d have got in since", r.visits.Load()-before)
		}
	}
}

// wantEmpty closes the clients, after which nothing may be left, and nobody may
// have been let in too many.
func wantEmpty(t *testing.T, s *Store, r *room, clients ...*fleet.Client) {
	t.Helper()
	for _, c := range clients {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if most := r.most.Load(); most > 4 {
		t.Errorf("%d were in at a time, want at most 4", most)
	}
	if leases, line := sessiontest.Held(t, s, "room"); len(leases)+len(line) > 0 {
		t.Errorf("leases %v, tickets %v are left", leases, line)
	}
	if err := checkSums(s); err != nil {
		t.Error(err)
	}
}

func TestTheServerIsRestartedInTheMiddleOfBatches(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	url := server.URL()
	var r room
	clients := []*fleet.Client{fleet.New(openAt(t, url, Options{})), fleet.New(openAt(t, url, Options{}))}
	end := crowd(t, &r, clients...)
	for range 3 {
		wantProgress(t, &r)
		server.StopAtOnce()
		time.Sleep(100 * time.Millisecond)
		server.Restart()
	}
	wantProgress(t, &r)
	end()
	look := openAt(t, url, Options{})
	wantEmpty(t, look, &r, clients...)
}

func TestConnectionsAreCutAndAnswersLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	p := enginetest.NewProxy(t, server.Address)
	u := server.URLOf("postgres", "postgres")
	u.Host = p.Address
	schema := newSchema()
	var r room
	clients := []*fleet.Client{fleet.New(openAt(t, u.String(), Options{Schema: schema})), fleet.New(openAt(t, u.String(), Options{Schema: schema}))}
	end := crowd(t, &r, clients...)
	for i := range 12 {
		wantProgress(t, &r)
		if i%2 == 0 {
			p.Cut()
			continue
		}
		p.SetFault(enginetest.Fault{CutReplies: true})
		time.Sleep(20 * time.Millisecond)
		p.Heal()
	}
	wantProgress(t, &r)
	end()
	look := openIn(t, schema, Options{})
	wantEmpty(t, look, &r, clients...)
}

func TestABatchWhoseAnswerWasLostIsNotDoneTwice(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	p := enginetest.NewProxy(t, server.Address)
	u := server.URLOf("postgres", "postgres")
	u.Host = p.Address
	schema := newSchema()
	direct := openIn(t, schema, Options{})
	s := sessiontest.Begin(t, openAt(t, u.String(), Options{Schema: schema}), "a", protocol.Config{Capacity: 10})
	s.Say()
	p.SetFault(enginetest.Fault{CutReplies: true})
	b := s.Next(sessiontest.Acquire(1, 3))
	if _, err := s.Store.Apply(ctx, "a", b); !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the server may still be at it
		if leases, _ := sessiontest.Held(t, direct, "a"); len(leases) == 1 {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the server has not heard it")
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

// TestWhatIsRetriedAtOnceIsNotDoneTwice has the store itself say a batch again.
func TestWhatIsRetriedAtOnceIsNotDoneTwice(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 10})
	for i := range protocol.Ticket(20) {
		exec(t, store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'idle' AND query LIKE '%'||$1||'%'", store.options.Schema)
		r, err := store.Apply(ctx, "a", s.Next(sessiontest.Acquire(i+1, 1)))
		if err != nil || r.Status > protocol.Repeated {
			t.Fatalf("%+v, %v", r, err)
		}
		s.Hear(r)
		s.Say(sessiontest.Release(r.Results[0].Lease))
	}
	sessiontest.WantHeld(t, store, "a")
}

func TestAStandbySaysThatItIsOne(t *testing.T) {
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
			t.Fatal("it does not come")
		}
	}
}

// TestTimeoutsAreHonoured has somebody hold the semaphore's row.
func TestTimeoutsAreHonoured(t *testing.T) {
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

// TestTheTimeIsThatAfterTheLock has a batch wait for the row. What it then does is
// done when it has the row, not when its transaction began.
func TestTheTimeIsThatAfterTheLock(t *testing.T) {
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
	said := make(chan error)
	b := s.Next(sessiontest.Acquire(1, 1))
	go func() {
		_, err := store.Apply(ctx, "a", b)
		said <- err
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
	if err := <-said; err != nil {
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

func TestADroppedSchemaIsSaidToBeGone(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 1})
	exec(t, store, "DROP SCHEMA "+store.options.Schema+" CASCADE")
	if _, err := store.Inspect(ctx, "a"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "run sema migrate") {
		t.Error(err)
	}
}

// TestARollingUpgrade has clients of two versions of the protocol on one
// semaphore, which is then raised, after which the one before is refused only if
// it is too old.
func TestARollingUpgrade(t *testing.T) {
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
	old.Say(sessiontest.Acquire(2, 1), protocol.Op{Verb: 77, Ticket: 3})
	young.Say(sessiontest.Release(lease))
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
	old.Say() // who is there goes on
	if _, err := openBy(protocol.Version + 1); err != nil {
		t.Error(err)
	}
}
