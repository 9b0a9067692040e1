package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/pool"
)

// A conn is an item of the tests.
type conn struct {
	id     int
	broken bool // set before the item is idle
	closed bool
}

// A server opens and closes conns, and records that none is closed twice.
type server struct {
	t    testing.TB
	open func(ctx context.Context, n int) error // runs in each Open, n is 1 for the first; may be nil

	mu            sync.Mutex // guards what follows
	opened        int        // calls of Open
	alive, most   int        // conns that are open, or being opened; and the most at once
	closes        int
	opening, wide int // calls of Open at once, and the most of them
}

// Open opens a conn.
func (s *server) Open(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	s.opened++
	s.alive++
	s.opening++
	s.most, s.wide = max(s.most, s.alive), max(s.wide, s.opening)
	n := s.opened
	s.mu.Unlock()
	err := errors.New("the goroutine has ended")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opening--
		if err != nil {
			s.alive--
		}
	}()
	if s.open == nil {
		err = nil
	} else {
		err = s.open(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	return &conn{id: n}, nil
}

// Close closes a conn.
func (s *server) Close(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		s.t.Errorf("conn %d is closed twice", c.id)
	}
	c.closed = true
	s.alive--
	s.closes++
}

// Check fails for a broken conn.
func (s *server) Check(_ context.Context, c *conn) error {
	if c.broken {
		return errors.New("broken")
	}
	return nil
}

func (s *server) count() (opened, alive int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.alive
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// newPool returns a pool of conns of s, which is closed at the end of the test. Then all
// conns have to be closed.
func newPool(t *testing.T, s *server, c pool.Config[*conn]) *pool.Pool[*conn] {
	t.Helper()
	s.t = t
	c.Open, c.Close = s.Open, s.Close
	p := pool.New(c)
	t.Cleanup(func() {
		p.Close()
		if err := p.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		// An Open in progress still has to end, and the janitor to close what has expired.
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, alive := s.count(); alive == 0 {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%d conns are open after Close: %v", alive, p)
			}
		}
	})
	return p
}

func mustGet(t testing.TB, p *pool.Pool[*conn]) pool.Item[*conn] {
	t.Helper()
	item, err := p.Get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if item.Value().closed {
		t.Fatalf("conn %d is closed", item.Value().id)
	}
	return item
}

// A result is that of a Get in another goroutine.
type result struct {
	item pool.Item[*conn]
	err  error
}

// getting starts a Get and returns when all goroutines of the bubble wait.
func getting(ctx context.Context, p *pool.Pool[*conn]) <-chan result {
	c := make(chan result, 1)
	go func() {
		item, err := p.Get(ctx)
		c <- result{item, err}
	}()
	synctest.Wait()
	return c
}

// wantPending fails if a Get has returned.
func wantPending(t testing.TB, c <-chan result) {
	t.Helper()
	synctest.Wait()
	if len(c) > 0 {
		t.Fatalf("a Get has returned, error %v; want it to wait", (<-c).err)
	}
}

// wantItem fails unless a Get has returned an item.
func wantItem(t testing.TB, c <-chan result) pool.Item[*conn] {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		if r.err != nil {
			t.Fatalf("a Get: %v, want an item", r.err)
		}
		return r.item
	default:
		t.Fatal("a Get waits, want an item")
	}
	return pool.Item[*conn]{}
}

// wantFailed fails unless a Get has returned an error that matches.
func wantFailed(t testing.TB, c <-chan result, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		wantErr(t, r.err, want)
	default:
		t.Fatalf("a Get waits, want %v", want)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// wantState fails unless these numbers of items are open and idle, and permits are held.
func wantState(t testing.TB, p *pool.Pool[*conn], open, idle, inUse int64) {
	t.Helper()
	st := p.Stats()
	if st.Open != open || st.Idle != idle || st.InUse != inUse {
		t.Fatalf("%d open, %d idle, %d permits held; want %d, %d, %d", st.Open, st.Idle, st.InUse, open, idle, inUse)
	}
	if left := st.Open - st.Opening - st.Kept; st.Opens != st.Closes+st.Keeps+left {
		t.Fatalf("%d opened, %d closed, %d kept, %d left: %+v", st.Opens, st.Closes, st.Keeps, left, st)
	}
}

func wantPanic(t testing.TB, what string, f func()) (reason any) {
	t.Helper()
	defer func() {
		if reason = recover(); reason == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
	return nil
}

// takes returns an open function that takes a time.
func takes(d time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error { time.Sleep(d); return nil }
}
