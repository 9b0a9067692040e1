package redisstore

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestStore_NumbersFreedWithinABatch checks that a number that a batch frees is the lowest
// free one for the next acquire of the batch.
func TestStore_NumbersFreedWithinABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := sessiontest.Begin(t, openServer(t, server), "db", protocol.Config{Capacity: 6, Numbered: true})
	leases := s.Granted(2, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 3))
	// A ticket is granted when the next one is queued, or at the end of the batch.
	r := s.Send(sessiontest.Acquire(3, 1), sessiontest.Acquire(4, 1), sessiontest.Release(leases[0]), sessiontest.Acquire(5, 2),
		protocol.Op{Verb: protocol.Release, Lease: leases[1], Weight: 2})
	var got []protocol.Slots
	for _, one := range r.Results {
		got = append(got, one.Slots)
	}
	if len(got) != 3 || got[0] != "4" || got[1] != "0" || got[2] != "2-3" {
		t.Errorf("granted %q, want 4, 0 and 2-3", got)
	}
	if taken := server.Must("HGET", "{sema:db}", "slots"); taken != "0-4" {
		t.Errorf("numbers %q are taken, want 0-4", taken)
	}
}
