package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A modeSchedule decides when to compare the modes of clients. The session's mutex guards
// it.
type modeSchedule struct {
	done bool            // a difference was reported, or this client may not read the store
	next protocol.Micros // earliest time of the next comparison; 0: with the first session
	gap  protocol.Micros // from the last comparison to the next; it doubles
}

const (
	minModesGap = protocol.Micros(time.Second / time.Microsecond)
	maxModesGap = protocol.Micros(10 * time.Minute / time.Microsecond)
)

// scheduleModeCheckLocked compares modes if that is due. It is called for the first session.
// It is called again while this client waits for others, because a client that held nothing
// at the last comparison was not compared. The pauses between comparisons double, since a
// comparison reads all leases.
func (s *session) scheduleModeCheckLocked(now protocol.Micros) {
	c := &s.modeCheck
	if c.done || now < c.next || s.lender != nil || s.last.Config.Kind != protocol.Concurrency {
		return
	}
	c.gap = min(max(2*c.gap, minModesGap), maxModesGap)
	c.next = now + c.gap
	s.client.start(s.compareModes)
}

// compareModes reports if other clients of the semaphore use another mode, as two
// deployments may. Exact clients then wait until blocks are returned, and the order is kept
// only from block to block. A store that cannot be read is not reported.
func (s *session) compareModes() {
	ctx := s.client.within(replyTimeout, limit{})
	defer ctx.release()
	snapshot, err := s.client.store.Inspect(ctx, s.name)
	if err != nil {
		s.mu.Lock()
		s.modeCheck.done = s.modeCheck.done || isDenial(err) // do not cause a log line at the server each time
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
	if s.modeCheck.done {
		return
	}
	s.modeCheck.done = true
	s.reportMismatch(snapshot.Config.Capacity, fmt.Sprintf("semaphore %q: this client uses %s and others use %s, so that the order is kept only from block to block", s.settings.label, modes[0], modes[1]),
		"use one mode in all clients")
}
