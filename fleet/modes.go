package fleet

import (
	"fmt"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// compareModes reports other clients of the semaphore that use another mode, as
// replicas of two deployments may: exact clients then wait for blocks to come back,
// and the order is kept only from block to block. It looks once, after the first
// session was opened; a store that cannot be read is no reason to report anything.
func (s *Semaphore) compareModes() {
	ctx := s.client.within(patience)
	defer ctx.end()
	snapshot, err := s.client.store.Inspect(ctx, s.name)
	if err != nil {
		return
	}
	own := map[protocol.Session]bool{}
	for _, session := range snapshot.Sessions {
		own[session.Session] = session.Instance == s.client.instance
	}
	pooled := s.options.Mode == Pooled
	mixed := slices.ContainsFunc(snapshot.Leases, func(l protocol.LeaseInfo) bool { return !own[l.Session] && l.Pooled != pooled })
	if !mixed {
		return
	}
	modes := []string{"exact leases", "blocks (Pooled, or a region)"}
	if pooled {
		slices.Reverse(modes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportMismatch(snapshot.Config.Capacity, fmt.Sprintf("semaphore %q: this client uses %s and others use %s; use one mode, or the order is kept only from block to block", s.name, modes[0], modes[1]))
}
