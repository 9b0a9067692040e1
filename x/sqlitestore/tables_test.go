package sqlitestore

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestSchema_ViewsForOperators queries the views with the sqlite3 shell, while the file
// has an owner.
func TestSchema_ViewsForOperators(t *testing.T) {
	t.Parallel()
	shell := proctest.Need(t, "sqlite3", "sqlite3")
	path := newFile(t)
	store := openAt(t, path, Options{})
	s := sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 3, MaxWaiters: 9})
	lease := s.Granted(1, sessiontest.Acquire(1, 2))[0]
	s.Send(sessiontest.Acquire(2, 2), sessiontest.Acquire(3, 1))
	r := sessiontest.Begin(t, store, "mails", protocol.Config{Kind: protocol.Rate, Capacity: 5, Window: sessiontest.TTL})
	r.Granted(2, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 3))

	for query, want := range map[string]string{
		"SELECT name, kind, capacity, in_use, leases, waiting, sessions, numbered, draining, ttl_seconds, window_seconds, ramp_per_second, max_waiters, version FROM semaphores": `jobs|concurrency|3|2|1|2|1|0|0|15.0|0.0|0|9|1
mails|rate|5|4|0|0|1|0|0|15.0|15.0|0|0|1`,
		"SELECT semaphore, seq, instance, weight, pooled, revoked, slots, details FROM permits": fmt.Sprintf("jobs|%d|instance of %s|2|0|0||holder=\"for a test\"", lease, t.Name()),
		"SELECT semaphore, place, ticket, weight, instance FROM waiters":                        fmt.Sprintf("jobs|1|2|2|instance of %[1]s\njobs|2|3|1|instance of %[1]s", t.Name()),
		"SELECT semaphore, session, permits, waiting, client FROM sessions":                     fmt.Sprintf("jobs|%d|1|2|\nmails|%d|0|0|", s.ID, r.ID),
		// The times are valid, and close to now.
		"SELECT abs(julianday('now') - julianday(since)) < 1, abs(julianday('now') - julianday(renewed)) < 1 FROM permits": "1|1",
		"SELECT abs(julianday('now') - julianday(changed)) < 1 FROM semaphores":                                            "1\n1",
		"SELECT abs(julianday('now') - julianday(since)) < 1 FROM waiters":                                                 "1\n1",
		"PRAGMA integrity_check": "ok",
	} {
		out, err := exec.Command(shell, "-readonly", path, query).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s\n%v, got\n%s\nwant\n%s", query, err, got, want)
		}
	}
	s.Send()
}

func TestStore_LogIsBounded(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{Normal: true})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 100})
	var largest int64
	for i := range protocol.Ticket(1000) {
		s.Send(sessiontest.Release(s.Granted(1, sessiontest.Acquire(i+1, 1))[0]))
		if about, err := os.Stat(path + "-wal"); err == nil {
			largest = max(largest, about.Size())
		}
	}
	const bound = 6 << 20 // a thousand pages are written back at a time, plus one group
	if largest == 0 || largest > bound {
		t.Errorf("the log grew to %d bytes, want at most %d", largest, bound)
	}
	about, err := os.Stat(path)
	if err != nil || about.Size() > 1<<20 {
		t.Errorf("the file has %d bytes, %v; want at most 1 MB, since few permits are held", about.Size(), err)
	}
}
