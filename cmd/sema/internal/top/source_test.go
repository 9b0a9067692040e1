package top

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A crowd is an engine with very many semaphores.
type crowd struct {
	fleetClient
	n       int
	clock   time.Time
	revoked fleet.Revocation
}

func (c *crowd) List(context.Context, string) (names []string, err error) {
	for i := range c.n {
		names = append(names, fmt.Sprintf("s%04d", i))
	}
	return names, nil
}

func (c *crowd) Ping(context.Context) (time.Time, error) { return c.clock, nil }

func (c *crowd) Inspect(_ context.Context, name string) (protocol.Snapshot, error) {
	switch name {
	case "s0001":
		return protocol.Snapshot{}, fs.ErrNotExist // it was deleted just now
	case "s0002":
		return protocol.Snapshot{}, errors.New("unreadable")
	}
	return protocol.Snapshot{
		Config:   protocol.Config{Capacity: 3, TTL: 15_000_000},
		Sessions: []protocol.SessionInfo{{Session: 7, Instance: "web-1/815/0badcafe"}},
		Leases:   []protocol.LeaseInfo{{Seq: 9, Session: 7, Weight: 2, Since: protocol.Micros(noon.UnixMicro())}},
		Line:     []protocol.TicketInfo{{Ticket: 1, Session: 7, Weight: 3}},
	}, nil
}

func (c *crowd) ForceRelease(_ context.Context, _ string, r fleet.Revocation) error {
	c.revoked = r
	return nil
}

func TestACrowdIsLookedAtInPart(t *testing.T) {
	t.Parallel()
	// Permits are held since a time of the engine's clock, not of this machine's.
	c := &crowd{n: mostLooked + 100, clock: noon.Add(time.Minute)}
	from := &fleetSource{c}
	v, err := from.look(t.Context(), "")
	if err != nil || v.more != 100 || len(v.semaphores) != mostLooked-1 {
		t.Fatalf("%d and %d more, %v", len(v.semaphores), v.more, err)
	}
	first, unread := v.semaphores[0], v.semaphores[1]
	if first.name != "s0000" || first.holders[0] != (holder{lease: 9, weight: 2, held: time.Minute, who: "web-1/815"}) || first.waiting != 1 || first.ttl != 15*time.Second {
		t.Errorf("%+v", first)
	}
	if unread.name != "s0002" || unread.failure != "unreadable" {
		t.Errorf("%+v", unread)
	}
	if err := from.revoke(t.Context(), "s0000", 9); err != nil || c.revoked.Lease != 9 || c.revoked.AtOnce || c.revoked.By == "" {
		t.Errorf("%+v, %v", c.revoked, err)
	}
}
