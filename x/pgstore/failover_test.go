package pgstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// startPair starts a primary, and a standby that has received all commits.
func startPair(t *testing.T) (primary, standby *pgtest.Server) {
	t.Helper()
	primary = pgtest.Start(t, "fsync=off")
	openAt(t, primary.URL(), Options{})
	standby = primary.Standby(t)
	awaitReplay(t, primary, standby)
	return primary, standby
}

// mustPsql runs a statement that must succeed, and returns its output.
func mustPsql(t testing.TB, s *pgtest.Server, statement string) string {
	t.Helper()
	out, err := s.Psql("postgres", statement)
	if err != nil {
		t.Fatalf("%s: %s", statement, out)
	}
	return out
}

// awaitReplay waits until the standby has replayed all commits of the primary.
func awaitReplay(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	at := mustPsql(t, primary, "SELECT pg_current_wal_lsn()")
	waitFor(t, func() bool { return mustPsql(t, standby, "SELECT pg_last_wal_replay_lsn() >= '"+at+"'") == "t" })
}

// set changes a setting of a running server.
func set(t testing.TB, s *pgtest.Server, setting, value string) {
	t.Helper()
	mustPsql(t, s, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
	mustPsql(t, s, "SELECT pg_reload_conf()")
	waitFor(t, func() bool { return mustPsql(t, s, "SHOW "+setting) == value })
}

// stopReplication ends the replication from the primary to the standby.
func stopReplication(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	set(t, standby, "primary_conninfo", "")
	waitFor(t, func() bool { return mustPsql(t, primary, "SELECT count(*) FROM pg_stat_replication") == "0" })
}

// failOver stops the primary and promotes the standby.
func failOver(t testing.TB, primary, standby *pgtest.Server) {
	t.Helper()
	primary.Stop()
	mustPsql(t, standby, "SELECT pg_promote()")
	waitFor(t, func() bool { return mustPsql(t, standby, "SELECT pg_is_in_recovery()") == "f" })
}

// urlOfBoth returns a URL that leads to whichever server is the primary.
func urlOfBoth(primary, standby *pgtest.Server) string {
	return fmt.Sprintf("postgres:///postgres?user=postgres&sslmode=disable&host=127.0.0.1,127.0.0.1&port=%d,%d&target_session_attrs=read-write", primary.Port, standby.Port)
}

// TestFailover_RejectsSessionsWithMissingCommits promotes a standby that lacks the last
// commits. Sessions that have a reply of such a commit are rejected. Numbers of those
// commits are not issued again, so that fences remain unique.
func TestFailover_RejectsSessionsWithMissingCommits(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	store := openAt(t, urlOfBoth(primary, standby), Options{})
	config := protocol.Config{Capacity: 4}
	open := func() *sessiontest.Session { return sessiontest.Begin(t, store, "a", config) }
	quiet, busy, revoked := open(), open(), open()
	for _, s := range []*sessiontest.Session{quiet, busy} {
		s.Granted(1, sessiontest.Acquire(1, 1))
		s.Send()
	}
	lease := revoked.Granted(1, sessiontest.Acquire(1, 1))[0]
	batch := revoked.Next()
	if _, err := store.Apply(ctx, "a", batch); err != nil {
		t.Fatal(err)
	}
	deleted := sessiontest.Begin(t, store, "deleted", config)
	awaitReplay(t, primary, standby)
	stopReplication(t, primary, standby)

	// The standby does not receive any of this.
	missing := busy.Send(sessiontest.Acquire(2, 1)).Results[0].Fence
	young := open()
	deletedToo := sessiontest.Begin(t, store, "deleted", config)
	leaseOfDeleted := deleted.Granted(1, sessiontest.Acquire(1, 1))[0]
	if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: lease}}); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Apply(ctx, "a", batch); err != nil || len(revoked.Receive(r).Results) != 1 { // the reply to the repeated batch has one result more
		t.Fatalf("%+v, %v", r, err)
	}
	failOver(t, primary, standby)

	// This session has no missing commit, and continues.
	again := quiet.Send(sessiontest.Acquire(3, 1)).Results
	if len(again) != 1 || again[0].Lease <= missing.Seq {
		t.Fatalf("%+v was granted after %d", again, missing.Seq)
	}
	var guard fleet.Guard
	if err := guard.Admit(again[0].Fence); err != nil {
		t.Fatal(err)
	}
	if err := guard.Admit(missing); !errors.Is(err, sema.ErrLost) {
		t.Errorf("the guard admits a fence of a missing commit: %v", err)
	}
	if id := open().ID; id <= young.ID {
		t.Errorf("session %d was opened after %d", id, young.ID)
	}
	for what, s := range map[string]*sessiontest.Session{"a session that was opened": young, "a session with a grant": busy, "a session with a revocation": revoked} {
		if r, err := store.Apply(ctx, "a", s.Next()); err != nil || r.Status != protocol.Unknown {
			t.Errorf("%s: %+v, %v; want status Unknown", what, r, err)
		}
	}
	quiet.Send()

	// The same holds for the numbers of a semaphore that is deleted at once.
	if err := store.Administer(ctx, "deleted", fleet.Command{Delete: true}); err != nil {
		t.Fatal(err)
	}
	anew := sessiontest.Begin(t, store, "deleted", config)
	if lease := anew.Granted(1, sessiontest.Acquire(1, 1))[0]; anew.ID <= deletedToo.ID || lease <= leaseOfDeleted {
		t.Errorf("session %d, lease %d; want more than %d and %d", anew.ID, lease, deletedToo.ID, leaseOfDeleted)
	}
}

// TestFailover_EndsPermitsOfMissingCommits promotes a standby that lacks the grant of a
// permit. Its holder loses the permit with its next heartbeat.
func TestFailover_EndsPermitsOfMissingCommits(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	const ttl = 3 * time.Second
	semaphore := func() *fleet.Semaphore {
		client := fleet.New(openAt(t, urlOfBoth(primary, standby), Options{}))
		t.Cleanup(func() { client.Close(ctx) })
		s, err := client.Semaphore("jobs", 1, fleet.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	holder, other := semaphore(), semaphore()
	for _, s := range []*fleet.Semaphore{holder, other} { // so that the standby has both sessions
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := fleet.Release(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	awaitReplay(t, primary, standby)
	stopReplication(t, primary, standby)
	held, err := holder.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	failOver(t, primary, standby)
	promoted := time.Now()
	select {
	case <-held.Lost():
		t.Logf("the permit was lost %v after the promotion, with a TTL of %v", time.Since(promoted), ttl)
	case <-time.After(ttl):
		t.Fatal("the holder keeps a permit of a missing commit")
	}
	if p, err := other.Acquire(ctx, 1); err != nil {
		t.Error(err)
	} else {
		p.Release()
	}
}

// TestFailover_KeepsAllCommitsOfASynchronousStandby promotes the standby while clients
// acquire and release.
func TestFailover_KeepsAllCommitsOfASynchronousStandby(t *testing.T) {
	t.Parallel()
	primary, standby := startPair(t)
	set(t, primary, "synchronous_standby_names", "*")
	waitFor(t, func() bool { return mustPsql(t, primary, "SELECT sync_state FROM pg_stat_replication") == "sync" })
	observer := openAt(t, urlOfBoth(primary, standby), Options{})
	if warnings := observer.Warnings(); len(warnings) != 1 { // about fsync, which is off in tests
		t.Errorf("%q", warnings)
	}
	var r section
	clients := []*fleet.Client{fleet.New(openAt(t, urlOfBoth(primary, standby), Options{})), fleet.New(openAt(t, urlOfBoth(primary, standby), Options{}))}
	end := contend(t, &r, clients...)
	wantProgress(t, &r)
	failOver(t, primary, standby)
	wantProgress(t, &r)
	end()
	wantEmpty(t, observer, &r, clients...)
}

// TestApply_IsRepeatedIfTheWaitForAStandbyIsCancelled cancels the wait: the server replies
// as usual, but the next primary may lack the commit.
func TestApply_IsRepeatedIfTheWaitForAStandbyIsCancelled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	store := openAt(t, server.URL(), Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	set(t, server, "synchronous_standby_names", "absent")
	type result struct {
		reply protocol.Reply
		err   error
	}
	replies := make(chan result, 1)
	cancelled := func() (n int) {
		fmt.Sscan(mustPsql(t, server, "SELECT count(*) FROM (SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep') x"), &n)
		return n
	}
	b := s.Next(sessiontest.Acquire(1, 1))
	go func() {
		r, err := store.Apply(ctx, "a", b)
		replies <- result{r, err}
	}()
	for range 2 { // the repeated statement waits again
		waitFor(t, func() bool {
			select {
			case a := <-replies:
				t.Fatalf("%+v, %v, which no standby has", a.reply, a.err)
			default:
			}
			return cancelled() > 0
		})
	}
	waitFor(t, func() bool {
		return mustPsql(t, server, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	set(t, server, "synchronous_standby_names", "")
	if a := <-replies; a.err != nil || len(a.reply.Results) != 1 {
		t.Errorf("%+v, %v", a.reply, a.err)
	}

	// The result of an operation that cannot be repeated is unknown.
	set(t, server, "synchronous_standby_names", "absent")
	go func() { replies <- result{err: store.Administer(ctx, "a", fleet.Command{Delete: true})} }()
	waitFor(t, func() bool { return cancelled() > 0 })
	if a := <-replies; !errors.Is(a.err, sema.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", a.err)
	}
	set(t, server, "synchronous_standby_names", "")
}

// TestStore_RejectsHoldersAfterACrashWithAsynchronousCommit crashes a server with
// synchronous_commit=off, which loses its last commits. The holder of a permit of such a
// commit is rejected at its next batch, and new fences are higher than that of the holder.
func TestStore_RejectsHoldersAfterACrashWithAsynchronousCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "wal_writer_delay=10s", "autovacuum=off")
	store, async := openAt(t, server.URL(), Options{}), openAt(t, server.URL()+"&synchronous_commit=off", Options{})
	for round := range 20 { // until a commit was not written in time
		name := fmt.Sprint("a", round)
		holder := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
		holder.Send()
		missing := holder.SendTo(async, sessiontest.Acquire(1, 1)).Results[0].Fence
		server.StopAtOnce()
		server.Restart()
		if leases, _ := sessiontest.Held(t, store, name); len(leases) > 0 {
			continue
		}
		second := sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1}).Send(sessiontest.Acquire(1, 1)).Results[0].Fence
		var guard fleet.Guard
		if err := guard.Admit(second); err != nil || second.Seq <= missing.Seq {
			t.Errorf("fence %+v after %+v: %v", second, missing, err)
		}
		if err := guard.Admit(missing); !errors.Is(err, sema.ErrLost) {
			t.Errorf("the guard admits a fence of a missing commit: %v", err)
		}
		holder.WantUnknown()
		return
	}
	t.Fatal("all commits were written in time")
}
