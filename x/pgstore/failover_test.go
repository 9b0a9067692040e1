package pgstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// startPair starts a primary, and a standby that has all it has.
func startPair(t *testing.T) (primary, standby *pgtest.Server) {
	t.Helper()
	primary = pgtest.Start(t, "fsync=off")
	openAt(t, primary.URL(), Options{})
	standby = primary.Standby(t)
	awaitReplay(t, primary, standby)
	return primary, standby
}

// ask runs a statement that has to go well.
func ask(t testing.TB, s *pgtest.Server, statement string) string {
	t.Helper()
	out, err := s.Psql("postgres", statement)
	if err != nil {
		t.Fatalf("%s: %s", statement, out)
	}
	return out
}

// awaitReplay waits until the standby has all that there is now.
func awaitReplay(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	at := ask(t, primary, "SELECT pg_current_wal_lsn()")
	waitFor(t, func() bool { return ask(t, standby, "SELECT pg_last_wal_replay_lsn() >= '"+at+"'") == "t" })
}

// set changes a setting of a server that runs.
func set(t testing.TB, s *pgtest.Server, setting, value string) {
	t.Helper()
	ask(t, s, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
	ask(t, s, "SELECT pg_reload_conf()")
	waitFor(t, func() bool { return ask(t, s, "SHOW "+setting) == value })
}

// cutOffFrom has the standby hear nothing more of the primary.
func cutOffFrom(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	set(t, standby, "primary_conninfo", "")
	waitFor(t, func() bool { return ask(t, primary, "SELECT count(*) FROM pg_stat_replication") == "0" })
}

// failOver has the standby take the place of the primary.
func failOver(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	primary.Stop()
	ask(t, standby, "SELECT pg_promote()")
	waitFor(t, func() bool { return ask(t, standby, "SELECT pg_is_in_recovery()") == "f" })
}

// ofBoth is how to reach whichever is the primary.
func ofBoth(primary, standby *pgtest.Server) string {
	return fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d&target_session_attrs=read-write", primary.Port, standby.Port)
}

// TestWhatAStandbyHasForgotten is told to those who know of it; and nothing has a
// number of it any more, so that fences tell who is who.
func TestWhatAStandbyHasForgotten(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	store := openAt(t, ofBoth(primary, standby), Options{})
	config := protocol.Config{Capacity: 4}
	open := func() *sessiontest.Session { return sessiontest.Begin(t, store, "a", config) }
	quiet, busy, told := open(), open(), open()
	for _, s := range []*sessiontest.Session{quiet, busy} {
		s.Granted(1, sessiontest.Acquire(1, 1))
		s.Say()
	}
	lease := told.Granted(1, sessiontest.Acquire(1, 1))[0]
	said := told.Next()
	if _, err := store.Apply(ctx, "a", said); err != nil {
		t.Fatal(err)
	}
	deleted := sessiontest.Begin(t, store, "deleted", config)
	awaitReplay(t, primary, standby)
	cutOffFrom(t, primary, standby)

	// All of this is forgotten.
	forgotten := busy.Say(sessiontest.Acquire(2, 1)).Results[0].Fence
	young := open()
	deletedToo := sessiontest.Begin(t, store, "deleted", config)
	leaseOfDeleted := deleted.Granted(1, sessiontest.Acquire(1, 1))[0]
	if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: lease}}); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Apply(ctx, "a", said); err != nil || len(told.Hear(r).Results) != 1 { // said again, it is answered with more
		t.Fatalf("%+v, %v", r, err)
	}
	failOver(t, primary, standby)

	// It was there all the time, and goes on.
	again := quiet.Say(sessiontest.Acquire(3, 1)).Results
	if len(again) != 1 || again[0].Lease <= forgotten.Seq {
		t.Fatalf("%+v was granted after %d", again, forgotten.Seq)
	}
	var guard fleet.Guard
	if err := guard.Admit(again[0].Fence); err != nil {
		t.Fatal(err)
	}
	if err := guard.Admit(forgotten); !errors.Is(err, sema.ErrLost) {
		t.Errorf("who holds what was forgotten is let in: %v", err)
	}
	if id := open().ID; id <= young.ID {
		t.Errorf("session %d was opened after %d", id, young.ID)
	}
	for who, s := range map[string]*sessiontest.Session{"who was opened": young, "who was granted something": busy, "who was told something": told} {
		if r, err := store.Apply(ctx, "a", s.Next()); err != nil || r.Status != protocol.Unknown {
			t.Errorf("%s: %+v, %v; want to be told that it is not known", who, r, err)
		}
	}
	quiet.Say()

	// So it is with numbers of one that is deleted at once.
	if err := store.Administer(ctx, "deleted", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	anew := sessiontest.Begin(t, store, "deleted", config)
	if lease := anew.Granted(1, sessiontest.Acquire(1, 1))[0]; anew.ID <= deletedToo.ID || lease <= leaseOfDeleted {
		t.Errorf("session %d, lease %d; want more than %d and %d", anew.ID, lease, deletedToo.ID, leaseOfDeleted)
	}
}

// TestAHolderHearsThatItsPermitIsForgotten at its next sign of life.
func TestAHolderHearsThatItsPermitIsForgotten(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	const ttl = 3 * time.Second
	semaphore := func() *fleet.Semaphore {
		client := fleet.New(openAt(t, ofBoth(primary, standby), Options{}))
		t.Cleanup(func() { client.Close(ctx) })
		s, err := client.Semaphore("jobs", 1, fleet.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	holder, other := semaphore(), semaphore()
	for _, s := range []*fleet.Semaphore{holder, other} { // so that both are known
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := fleet.Release(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	awaitReplay(t, primary, standby)
	cutOffFrom(t, primary, standby)
	held, err := holder.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	failOver(t, primary, standby)
	promoted := time.Now()
	select {
	case <-held.Lost():
		t.Logf("it heard of it %v after the promotion, with a TTL of %v", time.Since(promoted), ttl)
	case <-time.After(ttl):
		t.Fatal("it holds what is forgotten")
	}
	if p, err := other.Acquire(ctx, 1); err != nil {
		t.Error(err)
	} else {
		p.Release()
	}
}

// TestASynchronousStandbyForgetsNothing: many work on while it takes the place of
// the primary.
func TestASynchronousStandbyForgetsNothing(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	set(t, primary, "synchronous_standby_names", "*")
	waitFor(t, func() bool { return ask(t, primary, "SELECT sync_state FROM pg_stat_replication") == "sync" })
	look := openAt(t, ofBoth(primary, standby), Options{})
	if warnings := look.Warnings(); len(warnings) != 1 { // of fsync, which is off for the test's sake
		t.Errorf("%q", warnings)
	}
	var r room
	clients := []*fleet.Client{fleet.New(openAt(t, ofBoth(primary, standby), Options{})), fleet.New(openAt(t, ofBoth(primary, standby), Options{}))}
	end := crowd(t, &r, clients...)
	wantProgress(t, &r)
	failOver(t, primary, standby)
	wantProgress(t, &r)
	end()
	wantEmpty(t, look, &r, clients...)
}

// TestAWaitForAStandbyThatIsCancelled: the server answers as if all were well, but
// the next primary may not know of it.
func TestAWaitForAStandbyThatIsCancelled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	store := openAt(t, server.URL(), Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	set(t, server, "synchronous_standby_names", "nobody")
	type answer struct {
		reply protocol.Reply
		err   error
	}
	answered := make(chan answer, 1)
	cancelled := func() (n int) {
		fmt.Sscan(ask(t, server, "SELECT count(*) FROM (SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep') x"), &n)
		return n
	}
	b := s.Next(sessiontest.Acquire(1, 1))
	go func() {
		r, err := store.Apply(ctx, "a", b)
		answered <- answer{r, err}
	}()
	for range 2 { // what it is asked again waits again
		waitFor(t, func() bool {
			select {
			case a := <-answered:
				t.Fatalf("%+v, %v, which no standby knows of", a.reply, a.err)
			default:
			}
			return cancelled() > 0
		})
	}
	waitFor(t, func() bool {
		return ask(t, server, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	set(t, server, "synchronous_standby_names", "")
	if a := <-answered; a.err != nil || len(a.reply.Results) != 1 {
		t.Errorf("%+v, %v", a.reply, a.err)
	}

	// What cannot be asked again is not known.
	set(t, server, "synchronous_standby_names", "nobody")
	go func() { answered <- answer{err: store.Administer(ctx, "a", fleet.Command{Delete: true})} }()
	waitFor(t, func() bool { return cancelled() > 0 })
	if a := <-answered; !errors.Is(a.err, sema.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", a.err)
	}
	set(t, server, "synchronous_standby_names", "")
}

// With synchronous_commit=off a server that crashed has forgotten the last commits. A
// holder of what it has forgotten is rejected at its next batch, and new fences are
// higher than that of the holder.
func TestStore_CrashWithAsynchronousCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "wal_writer_delay=10s", "autovacuum=off")
	store, async := openAt(t, server.URL(), Options{}), openAt(t, server.URL()+"&synchronous_commit=off", Options{})
	for round := range 20 { // until a commit was not written in time
		name := fmt.Sprint("a", round)
		holder := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		holder.Say()
		forgotten := holder.SayBy(async, sessiontest.Acquire(1, 1)).Results[0].Fence
		server.StopAtOnce()
		server.Restart()
		if leases, _ := sessiontest.Held(t, store, name); len(leases) > 0 {
			continue
		}
		second := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1}).Say(sessiontest.Acquire(1, 1)).Results[0].Fence
		var guard fleet.Guard
		if err := guard.Admit(second); err != nil || second.Seq <= forgotten.Seq {
			t.Errorf("fence %+v after %+v: %v", second, forgotten, err)
		}
		if err := guard.Admit(forgotten); !errors.Is(err, sema.ErrLost) {
			t.Errorf("the guard admits what was forgotten: %v", err)
		}
		holder.WantUnknown()
		return
	}
	t.Fatal("all commits were written in time")
}
