package top

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

// A crowd is a scope with very many semaphores. The last one has all waiters.
type crowd struct {
	n       int
	waiters atomic.Int64
	clock   time.Time
	revoked scope.Revocation
	changed []scope.Change
	reads   atomic.Int64
	takes   time.Duration

	measures     int
	measureTakes time.Duration
}

func (c *crowd) Names(context.Context, string) (names []string, err error) {
	for i := range c.n {
		names = append(names, fmt.Sprintf("s%04d", i))
	}
	return names, nil
}

func (c *crowd) Measure(_ context.Context, _ string, states []scope.State) {
	if len(states) != 1 { // otherwise it is the selected one
		c.measures++
		time.Sleep(c.measureTakes)
	}
	for i := range states {
		states[i].Times = &scope.Times{Window: scope.Duration(time.Minute), Grants: new(float64(c.measures))}
	}
}

func (c *crowd) Now(context.Context) time.Time { return c.clock }

func (c *crowd) Inspect(ctx context.Context, name string) (scope.State, error) {
	c.reads.Add(1)
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return scope.State{}, ctx.Err()
		}
	}
	switch name {
	case "s0001":
		return scope.State{}, fs.ErrNotExist // just deleted
	case "s0002":
		return scope.State{}, errors.New("unreadable")
	}
	found := scope.State{
		Name: name, Capacity: 3, TTL: scope.Duration(15 * time.Second),
		Holders: []scope.Participant{{Lease: 9, Weight: 2, Since: noon, Host: "web-1", Process: 815}},
	}
	if name == fmt.Sprintf("s%04d", c.n-1) {
		found.Waiting = int(c.waiters.Load())
	}
	return found, nil
}

func (c *crowd) Configure(_ context.Context, _ string, change scope.Change) error {
	c.changed = append(c.changed, change)
	return nil
}

func (c *crowd) Revoke(_ context.Context, _ string, r scope.Revocation) error {
	c.revoked = r
	return nil
}

// TestPoller_RanksOverAll checks that the semaphore with the most waiters is first, whatever its name,
// and that each poll is bounded.
func TestPoller_RanksOverAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The times of leases are on the store's clock, not on this machine's.
		c := &crowd{n: 2001, clock: noon.Add(time.Minute)}
		c.waiters.Store(25)
		from := &poller{scope: c}
		m := newModel(t.Context(), from, "here", time.Second, "")
		poll := func() page {
			t.Helper()
			c.reads.Store(0)
			v, err := from.poll(t.Context(), "", m.selected)
			if err != nil {
				t.Fatal(err)
			}
			next, _ := m.Update(polledMsg{v, nil, time.Now(), 0})
			m = next.(model)
			return v
		}
		v := poll()
		if v.more != 1 || len(v.semaphores) != 2000 || c.reads.Load() != 2001 { // one was deleted
			t.Fatalf("%d and %d more, %d reads", len(v.semaphores), v.more, c.reads.Load())
		}
		first, unread := v.semaphores[0], v.semaphores[1]
		if first.Name != "s0000" || first.Holders[0].For(first.now) != time.Minute || processOf(first.Holders[0]) != "web-1/815" || time.Duration(first.TTL) != 15*time.Second {
			t.Errorf("%+v", first)
		}
		if unread.Name != "s0002" || unread.failure != "unreadable" {
			t.Errorf("%+v", unread)
		}
		// Only semaphores that cannot be read come before it.
		if rows := m.shown(); rows[0].Name != "s0002" || rows[1].Name != "s2000" || rows[1].Waiting != 25 || !strings.Contains(m.draw(), "25 waiting") {
			t.Errorf("%s\n%+v", m.draw(), rows[1])
		}

		c.waiters.Store(0)
		time.Sleep(time.Second)
		poll()
		c.waiters.Store(30)
		for polls := 1; m.shown()[1].Waiting != 30; polls++ {
			time.Sleep(time.Second)
			c.clock = c.clock.Add(time.Second)
			v = poll()
			if n := c.reads.Load(); n > 2*mostRead+2 || polls > 6 {
				t.Fatalf("poll %d reads %d", polls, n)
			}
		}
		for _, one := range v.semaphores { // whether it was read again or not
			if one.failure == "" && one.Holders[0].For(one.now) != c.clock.Sub(noon) {
				t.Fatalf("%s is held for %v, not %v", one.Name, one.Holders[0].For(one.now), c.clock.Sub(noon))
			}
		}
		if err := errors.Join(from.drain(t.Context(), "s0000", true), from.resize(t.Context(), "s0000", 7)); err != nil || len(c.changed) != 2 || !*c.changed[0].Draining || *c.changed[1].Capacity != 7 {
			t.Errorf("%+v, %v", c.changed, err)
		}
		if err := from.revoke(t.Context(), "s0000", 9); err != nil || c.revoked.Lease != 9 || c.revoked.AtOnce || c.revoked.Why == "" {
			t.Errorf("%+v, %v", c.revoked, err)
		}
	})
}

// TestPoller_SlowStore checks that a poll ends in time, and that later polls read more.
func TestPoller_SlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 2001, clock: noon, takes: 20 * time.Millisecond} // 400 a second
		from := &poller{scope: c}
		for polls := 1; ; polls++ {
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
			v, err := from.poll(ctx, "", "")
			cancel()
			if err != nil || polls == 1 && v.more < 100 {
				t.Fatalf("poll %d: %d more, %v", polls, v.more, err)
			}
			if v.more <= 1 {
				return
			}
			if polls > 5 {
				t.Fatalf("after %d polls %d are unread", polls, v.more)
			}
		}
	})
}

// TestPoller_MeasuresAll checks that every semaphore has the figures of a service, and fresh ages, and
// that measurements take a twentieth of the time at most.
func TestPoller_MeasuresAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 7, clock: noon.Add(time.Minute)}
		from := &poller{scope: c}
		measures := func(want int) {
			t.Helper()
			p, err := from.poll(t.Context(), "", "s0003")
			if err != nil || c.measures != want {
				t.Errorf("%d measurements, want %d; %v", c.measures, want, err)
			}
			for _, s := range p.semaphores {
				if s.failure == "" && (s.grants() != float64(want) || s.Name != "s0003" && time.Duration(*s.Times.OldestHold) != c.clock.Sub(noon)) {
					t.Errorf("%s: %+v", s.Name, s.Times)
				}
			}
		}
		measures(1)
		time.Sleep(time.Second)
		c.clock = c.clock.Add(time.Second)
		measures(1)
		time.Sleep(measureEvery)
		c.measureTakes = time.Second
		measures(2)
		time.Sleep(2 * measureEvery)
		measures(2)
		time.Sleep(measureShare * time.Second)
		measures(3)
	})
}
