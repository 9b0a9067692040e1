package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// summary returns the summary of the only semaphore of a store.
func summary(t *testing.T, store fleet.Store) protocol.Summary {
	t.Helper()
	page, err := store.List(ctx, protocol.ListQuery{})
	if err != nil || len(page) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	return page[0]
}

// listed returns the names that a store lists.
func listed(t *testing.T, store fleet.Store, q protocol.ListQuery) (names []string) {
	t.Helper()
	page, err := store.List(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range page {
		names = append(names, one.Name)
	}
	return names
}

func TestList_PagesAreInTheOrderOfBytes(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{Prefix: "p", Normal: true})
	var want []string
	for _, other := range []string{"", "q", "o"} {
		neighbour := openAt(t, path, Options{Prefix: other, Normal: true})
		sessiontest.Begin(t, neighbour, "other", protocol.Config{Capacity: 1})
	}
	for i := range 30 {
		name := fmt.Sprintf("%c%d~", 'A'+i*2, i%3)
		want = append(want, name)
		sessiontest.Begin(t, store, name, protocol.Config{Capacity: 1})
	}
	slices.Sort(want)
	for name, s := range map[string]fleet.Store{"owner": store, "reader": openReader(t, path, Options{Prefix: "p"})} {
		for limit := range 8 {
			var got []string
			for q := (protocol.ListQuery{Limit: limit}); ; q.After = got[len(got)-1] {
				page := listed(t, s, q)
				got = append(got, page...)
				if len(page) < q.Most() || len(got) > len(want) {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, pages of %d: %q, want %q", name, limit, got, want)
			}
		}
	}
}

// TestList_IsTheSameFromMemoryAndFromTheFile compares an owner, which lists from memory,
// with a reader, which lists from the file.
func TestList_IsTheSameFromMemoryAndFromTheFile(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 5, MaxWaiters: 9})
	s.Granted(2, sessiontest.Acquire(1, 3), sessiontest.Acquire(2, 1))
	s.Send(sessiontest.Acquire(3, 4), sessiontest.Acquire(4, 1), sessiontest.Acquire(5, 1))
	want := protocol.Summary{Name: "a", Effective: 5, InUse: 4, Leases: 2, Waiting: 3, Sessions: 1}
	want.Config = protocol.Config{Capacity: 5, MaxWaiters: 9, TTL: sessiontest.TTL, Version: 1, Protocol: protocol.Version}
	if got := summary(t, store); got != want {
		t.Errorf("from memory %+v, want %+v", got, want)
	}
	if got := summary(t, openReader(t, path, Options{})); got != want {
		t.Errorf("from the file %+v, want %+v", got, want)
	}
}

// TestList_DelaysNoRequest acquires and releases while a list is being read, and lists while
// another caller lists.
func TestList_DelaysNoRequest(t *testing.T) {
	t.Parallel()
	store := openAt(t, newFile(t), Options{Normal: true})
	session := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	reading, resume := make(chan struct{}), make(chan struct{})
	<-store.shared.snapshots.turn
	store.shared.snapshots.beforeRead = func() {
		reading <- struct{}{}
		<-resume
	}
	store.shared.snapshots.turn <- struct{}{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if one := summary(t, store); one.InUse != 2 {
			t.Errorf("%d permits in use, want 2: those acquired while the list was read", one.InUse)
		}
	}()
	<-reading
	session.Granted(2, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := store.List(gone, protocol.ListQuery{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a second list whose caller has given up: %v", err)
	}
	close(resume)
	<-done
}

// TestList_PageOfSeveralTurns lists more semaphores than a list reads in one turn.
func TestList_PageOfSeveralTurns(t *testing.T) {
	t.Parallel()
	store := openAt(t, newFile(t), Options{Prefix: "p", Normal: true})
	var want []string
	for i := range 2*listedAtOnce + 7 {
		want = append(want, fmt.Sprintf("%04d", i))
		sessiontest.Begin(t, store, want[i], protocol.Config{Capacity: 1})
	}
	for _, limit := range []int{0, listedAtOnce, listedAtOnce + 1, 2 * listedAtOnce, len(want)} {
		most := protocol.ListQuery{Limit: limit}.Most()
		if got := listed(t, store, protocol.ListQuery{Limit: limit}); !slices.Equal(got, want[:min(most, len(want))]) {
			t.Errorf("limit %d: listed %d semaphores, want %d", limit, len(got), min(most, len(want)))
		}
	}
}

// TestList_MovedFile checks that a list does not read another file that has the path.
func TestList_MovedFile(t *testing.T) {
	t.Parallel()
	path, moved := newFile(t), newFile(t)
	store := openAt(t, path, Options{})
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 2})
	if err := os.Rename(path, moved); err != nil {
		t.Skip(err) // Windows does not move open files
	}
	if _, err := store.List(ctx, protocol.ListQuery{}); err == nil || !strings.Contains(err.Error(), "moved or replaced") {
		t.Errorf("the file was moved: %v", err)
	}
	if err := os.Rename(moved, path); err != nil {
		t.Fatal(err)
	}
	if names := listed(t, store, protocol.ListQuery{}); len(names) != 1 {
		t.Errorf("listed %q after the file was moved back", names)
	}
}

func TestList_CapacityRisesWithTime(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	now := protocol.Micros(time.Now().UnixMicro())
	store.useClock(func() protocol.Micros { return now })
	sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 10, Ramp: 10})
	config := summary(t, store).Config
	config.Capacity = 100
	if err := store.Administer(ctx, "a", fleet.Command{Configure: &config}); err != nil {
		t.Fatal(err)
	}
	commits := store.shared.writer.commits
	for _, want := range []int64{10, 40, 70, 100, 100} {
		if got := summary(t, store); got.Effective != want {
			t.Errorf("capacity %d, want %d", got.Effective, want)
		}
		now += 3_000_000
	}
	if store.shared.writer.commits != commits {
		t.Error("List wrote to the file")
	}
	now = 1
	if got := summary(t, store); got.Effective != 10 {
		t.Errorf("capacity %d after the clock stepped back, want 10", got.Effective)
	}
}

// TestList_SpendingPasses checks that a reader sees nothing in use after a window has
// passed, although nothing is written then.
func TestList_SpendingPasses(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	now := protocol.Micros(time.Now().UnixMicro()) - 2*sessiontest.TTL
	store.useClock(func() protocol.Micros { return now })
	s := sessiontest.Begin(t, store, "a", protocol.Config{Kind: protocol.Rate, Capacity: 9, Window: sessiontest.TTL})
	s.Granted(1, sessiontest.Acquire(1, 4))
	if got := summary(t, store); got.InUse != 4 {
		t.Errorf("%d in use, want 4", got.InUse)
	}
	if got := summary(t, openReader(t, path, Options{})); got.InUse != 0 {
		t.Errorf("%d in use after the window has passed, want 0", got.InUse)
	}
}

func TestPrefixEnd_IsAfterAllNames(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "\xff", "a": "b", "a~": "a\x7f", "a\xff": "b", "\xff\xff": "\xff"} {
		if got := prefixEnd(prefix); got != want {
			t.Errorf("end of prefix %q: %q, want %q", prefix, got, want)
		}
	}
}

// changed returns the number of rows of the file that act writes.
func changed(t *testing.T, store *Store, act func()) int64 {
	t.Helper()
	total := func() (n int64) {
		err := store.await(ctx, &request{ctx: ctx, read: func(f *file) error {
			return f.query("SELECT total_changes()", func(r *row) { n = r.integer() })
		}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := total()
	act()
	return total() - before
}

func settle(lease protocol.Seq, cost int64) protocol.Op {
	return protocol.Op{Verb: protocol.Settle, Ticket: 1, Lease: lease, Weight: cost, Least: 1}
}

func TestSettle_WritesOneRow(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	now := protocol.Micros(time.Now().UnixMicro())
	store.useClock(func() protocol.Micros { return now })
	s := sessiontest.Begin(t, store, "a", protocol.Config{Kind: protocol.Rate, Capacity: 2000, Window: sessiontest.TTL})
	var ops []protocol.Op
	for i := range protocol.Ticket(300) {
		ops = append(ops, sessiontest.Acquire(i+1, 1))
	}
	early := s.Granted(len(ops), ops...)
	now += sessiontest.TTL / 2
	for i := range ops {
		ops[i].Ticket += 300
	}
	late := s.Granted(len(ops), ops...)
	const others = 2 // the rows of the semaphore and of the session
	for what, c := range map[string]struct {
		ops  []protocol.Op
		rows int64
	}{
		"in the middle": {[]protocol.Op{settle(early[150], 5)}, 1},
		"three":         {[]protocol.Op{settle(late[0], 2), settle(late[299], 0), settle(late[7], 2), settle(late[7], 3)}, 3},
	} {
		if n := changed(t, store, func() { s.Send(c.ops...) }); n != c.rows+others {
			t.Errorf("%s: %d rows were written, want %d", what, n, c.rows+others)
		}
	}
	now += sessiontest.TTL/2 + 1 // the window of the first 300 passes
	if n := changed(t, store, func() { s.Send(settle(late[9], 4)) }); n != 300+1+others {
		t.Errorf("%d rows were removed and written, want %d", n, 300+1+others)
	}
	want := store.shared.writer.entries["a"].state.Image().Spent
	var got stored
	if err := store.await(ctx, &request{ctx: ctx, read: func(f *file) (err error) { got, err = f.load("a"); return err }}); err != nil {
		t.Fatal(err)
	}
	if len(want) != 300 || !reflect.DeepEqual(got.image.Spent, want) {
		t.Errorf("the %d entries in memory differ from the %d in the file", len(want), len(got.image.Spent))
	}
}

// TestSettle_SurvivesARestart checks that acknowledged settlements are in the file.
func TestSettle_SurvivesARestart(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := protocol.Micros(time.Now().UnixMicro())
	store.useClock(func() protocol.Micros { return now })
	s := sessiontest.Begin(t, store, "a", protocol.Config{Kind: protocol.Rate, Capacity: 100, Window: sessiontest.TTL})
	leases := s.Granted(2, sessiontest.Acquire(1, 10), sessiontest.Acquire(2, 10))
	s.Send() // acknowledges the grants
	s.Send(settle(leases[0], 1), settle(leases[1], 30))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	again := openAt(t, path, Options{})
	again.useClock(func() protocol.Micros { return now })
	if got := summary(t, again); got.InUse != 31 {
		t.Errorf("%d in use, want 31", got.InUse)
	}
}
