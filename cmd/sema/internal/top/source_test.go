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

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A crowd is a store with very many semaphores; those who wait are at the last one.
type crowd struct {
	fleetClient
	n       int
	waiters atomic.Int64
	clock   time.Time
	revoked fleet.Revocation
	reads   atomic.Int64
	takes   time.Duration
}

func (c *crowd) List(context.Context, string) (names []string, err error) {
	for i := range c.n {
		names = append(names, fmt.Sprintf("s%04d", i))
	}
	return names, nil
}

func (c *crowd) Ping(context.Context) (time.Time, error) { return c.clock, nil }

func (c *crowd) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	c.reads.Add(1)
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return protocol.Snapshot{}, ctx.Err()
		}
	}
	switch name {
	case "s0001":
		return protocol.Snapshot{}, fs.ErrNotExist // it was deleted just now
	case "s0002":
		return protocol.Snapshot{}, errors.New("unreadable")
	}
	found := protocol.Snapshot{
		Config:   protocol.Config{Capacity: 3, TTL: 15_000_000},
		Sessions: []protocol.SessionInfo{{Session: 7, Instance: "web-1/815/0badcafe"}},
		Leases:   []protocol.LeaseInfo{{Seq: 9, Session: 7, Weight: 2, Since: protocol.Micros(noon.UnixMicro())}},
	}
	if name == fmt.Sprintf("s%04d", c.n-1) {
		found.Queue = make([]protocol.TicketInfo, c.waiters.Load())
	}
	return found, nil
}

func (c *crowd) Revoke(_ context.Context, _ string, r fleet.Revocation) error {
	c.revoked = r
	return nil
}

// TestFleetSource_RanksOverAll: the semaphore with the most waiters is first, wherever
// its name is, and each look is bounded.
func TestFleetSource_RanksOverAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Permits are held since a time of the store's clock, not of this machine's.
		c := &crowd{n: 2001, clock: noon.Add(time.Minute)}
		c.waiters.Store(25)
		from := &fleetSource{client: c}
		m := newModel(t.Context(), from, "here", time.Second, "")
		look := func() view {
			t.Helper()
			c.reads.Store(0)
			v, err := from.look(t.Context(), "", m.selected)
			if err != nil {
				t.Fatal(err)
			}
			next, _ := m.Update(lookedMsg{v, nil, time.Now(), 0})
			m = next.(model)
			return v
		}
		v := look()
		if v.more != 1 || len(v.semaphores) != 2000 || c.reads.Load() != 2001 { // one was deleted
			t.Fatalf("%d and %d more, %d reads", len(v.semaphores), v.more, c.reads.Load())
		}
		first, unread := v.semaphores[0], v.semaphores[1]
		if first.name != "s0000" || first.holders[0] != (holder{lease: 9, weight: 2, held: time.Minute, who: "web-1/815"}) || first.ttl != 15*time.Second {
			t.Errorf("%+v", first)
		}
		if unread.name != "s0002" || unread.failure != "unreadable" {
			t.Errorf("%+v", unread)
		}
		// Before it come only those that cannot be read.
		if rows := m.shown(); rows[0].name != "s0002" || rows[1].name != "s2000" || rows[1].waiting != 25 || !strings.Contains(m.draw(), "25 waiting") {
			t.Errorf("%s\n%+v", m.draw(), rows[1])
		}

		c.waiters.Store(0)
		time.Sleep(time.Second)
		look()
		c.waiters.Store(30)
		for looks := 1; m.shown()[1].waiting != 30; looks++ {
			time.Sleep(time.Second)
			c.clock = c.clock.Add(time.Second)
			v = look()
			if n := c.reads.Load(); n > 2*mostLooked+2 || looks > 6 {
				t.Fatalf("look %d reads %d", looks, n)
			}
		}
		for _, one := range v.semaphores { // whether it was read again or not
			if one.failure == "" && one.holders[0].held != c.clock.Sub(noon) {
				t.Fatalf("%s is held for %v, not %v", one.name, one.holders[0].held, c.clock.Sub(noon))
			}
		}
		if err := from.revoke(t.Context(), "s0000", 9); err != nil || c.revoked.Lease != 9 || c.revoked.AtOnce || c.revoked.By == "" {
			t.Errorf("%+v, %v", c.revoked, err)
		}
	})
}

// TestFleetSource_OfASlowStore: a look ends in time, and the next ones know more.
func TestFleetSource_OfASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 2001, clock: noon, takes: 20 * time.Millisecond} // 400 a second
		from := &fleetSource{client: c}
		for looks := 1; ; looks++ {
			ctx, cancel := context.WithTimeout(t.Context(), lookTime)
			v, err := from.look(ctx, "", "")
			cancel()
			if err != nil || looks == 1 && v.more < 100 {
				t.Fatalf("look %d: %d more, %v", looks, v.more, err)
			}
			if v.more <= 1 {
				return
			}
			if looks > 5 {
				t.Fatalf("after %d looks %d are unread", looks, v.more)
			}
		}
	})
}
