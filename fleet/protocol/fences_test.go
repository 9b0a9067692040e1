package protocol_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestFence_SeparatesLiveFromEndedLeases(t *testing.T) {
	// Every fence of a reply, those of repeated results included, determines for each Seq from its
	// Floor up to itself whether the lease is live.
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		e := newTestStore(t, protocol.Config{Capacity: 40})
		sessions := []protocol.Session{e.open(), e.open()}
		held := map[protocol.Session][]protocol.Seq{}
		ticket := protocol.Ticket(0)
		for range 60 {
			id := sessions[rng.IntN(2)]
			var ops []protocol.Op
			for range rng.IntN(8) {
				ticket++
				ops = append(ops, acquire(ticket, 1))
			}
			for i, lease := range held[id] {
				if rng.IntN(3) == 0 {
					ops = append(ops, release(lease))
					held[id][i] = 0
				}
			}
			ack := e.acks[id]
			r := e.send(id, ops...)
			if rng.IntN(2) == 0 {
				e.acks[id] = ack // the results are repeated
			} else {
				for _, f := range r.Results {
					held[id] = append(held[id], f.Lease)
				}
			}
			checkFences(t, e, r)
		}
	}
}

func checkFences(t *testing.T, e *testStore, r protocol.Reply) {
	t.Helper()
	live, floor := map[protocol.Seq]bool{}, protocol.Seq(0)
	for _, l := range e.state.Snapshot().Leases {
		if floor == 0 {
			floor = l.Seq
		}
		live[l.Seq] = true
	}
	for _, result := range r.Results {
		f := result.Fence
		if f.Seq != result.Lease || floor != 0 && f.Floor != min(f.Seq, floor) {
			t.Fatalf("fence %+v of lease %d; the lowest live Seq is %d", f, result.Lease, floor)
		}
		for seq := f.Floor; seq < f.Seq; seq++ {
			revoked := false
			for _, gone := range f.Revoked {
				revoked = revoked || gone.From <= seq && seq <= gone.To
			}
			if revoked == live[seq] {
				t.Fatalf("fence %+v: %d is live: %v", f, seq, live[seq])
			}
		}
	}
}
