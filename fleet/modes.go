package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A comparison schedules how often the modes of clients are compared. The mutex guards it.
type comparison struct {
	done bool            // another mode was reported, or this client may not read
	next protocol.Micros // not before; 0: with the first session
	gap  protocol.Micros // until the comparison after the next one
}

const (
	minModesGap = protocol.Micros(time.Second / time.Microsecond)
	maxModesGap = protocol.Micros(10 * time.Minute / time.Microsecond)
)

// watchModes compares modes if it is time to. It is called with the first session,
// and while this client waits for others: when it started, they may have held
// nothing. The pauses between comparisons double, since they read all leases. The
// mutex is held.
func (s *session) watchModes(now protocol.Micros) {
	c := &s.modes
	if c.done || now < c.next || s.lender != nil || s.last.Config.Kind != protocol.Concurrency {
		return
	}
	c.gap = min(max(2*c.gap, minModesGap), maxModesGap)
	c.next = now + c.gap
	s.client.start(s.compareModes)
}

// compareModes reports other clients of the semaphore that use another mode, as
// replicas of two deployments may: exact clients then wait for blocks to come back,
// and the order is kept only from block to block. A store that cannot be read is no
// reason to report anything.
func (s *session) compareModes() {
	ctx := s.client.within(replyTimeout)
	defer ctx.end()
	snapshot, err := s.client.store.Inspect(ctx, s.name)
	if err != nil {
		s.mu.Lock()
		s.modes.done = s.modes.done || errors.Is(err, fs.ErrPermission) // which would be logged at a server each time
		s.mu.Unlock()
		return
	}
	own := map[protocol.Session]bool{}
	for _, session := range snapshot.Sessions {
		own[session.Session] = session.Client.Instance == s.client.self.Instance
	}
	pooled := s.settings.mode == ModePooled
	mixed := slices.ContainsFunc(snapshot.Leases, func(l protocol.LeaseInfo) bool { return !own[l.Session] && l.Pooled != pooled })
	if !mixed {
		return
	}
	modes := []string{"exact leases", "blocks (ModePooled, or a region)"}
	if pooled {
		slices.Reverse(modes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modes.done {
		return
	}
	s.modes.done = true
	s.reportMismatch(snapshot.Config.Capacity, fmt.Sprintf("semaphore %q: this client uses %s and others use %s, so that the order is kept only from block to block", s.settings.label, modes[0], modes[1]),
		"use one mode in all clients")
}
