package fleet_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestGuard_AgreesWithAReferenceModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var g fleet.Guard
		n := referenceGuard{revoked: map[protocol.Seq]bool{}}
		for range 60 {
			floor := protocol.Seq(rng.IntN(20))
			f := protocol.Fence{Seq: floor + protocol.Seq(rng.IntN(30)), Floor: floor}
			for from := floor + protocol.Seq(rng.IntN(8)); from < f.Seq; {
				to := min(f.Seq-1, from+protocol.Seq(rng.IntN(4)))
				f.Revoked = append(f.Revoked, protocol.Range{From: from, To: to})
				from = to + 2 + protocol.Seq(rng.IntN(8))
			}
			if got, want := g.Admit(f) == nil, n.admit(f); got != want {
				t.Fatalf("seed %d, %+v: admitted is %v, want %v", seed, f, got, want)
			}
		}
	}
}

func TestGuard_RejectsEndedLeasesOnly(t *testing.T) {
	t.Parallel()
	var g fleet.Guard
	fence := func(seq, floor protocol.Seq, revoked ...protocol.Range) protocol.Fence {
		return protocol.Fence{Seq: seq, Floor: floor, Revoked: revoked}
	}
	for i, step := range []struct {
		fence    protocol.Fence
		rejected bool
	}{
		{fence(5, 5), false},
		{fence(7, 5, protocol.Range{From: 6, To: 6}), false},
		{fence(6, 5), true},
		{fence(5, 5), false}, // still held
		{fence(12, 5, protocol.Range{From: 6, To: 6}, protocol.Range{From: 8, To: 11}), false},
		{fence(9, 5), true},
		{fence(7, 5), false},
		{fence(13, 7, protocol.Range{From: 8, To: 12}), false},
		{fence(5, 5), true},
		{fence(12, 5), true},
		{fence(13, 7), false},
		{fence(20, 20), false},
		{fence(13, 7), true},
	} {
		if err := g.Admit(step.fence); errors.Is(err, sema.ErrLost) != step.rejected {
			t.Errorf("step %d, %+v: %v", i, step.fence, err)
		}
	}
}

func TestGuard_RejectsPermitsWithoutAFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var guard fleet.Guard
		c, _ := newClient(t, memstore.New())
		rate := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		lease, ok := fleet.LeaseOf(mustAcquire(t, rate, 1))
		if !ok || lease.ID == 0 || lease.Fence.Seq != 0 {
			t.Errorf("a permit of a rate has lease %+v, %v", lease, ok)
		}
		wantErr(t, guard.Admit(lease.Fence), sema.ErrInvalid)

		_, _, _, p := failedOpen(t)
		if lease, ok = fleet.LeaseOf(p); ok {
			t.Errorf("a permit of a local limit has lease %+v", lease)
		}
		wantErr(t, guard.Admit(lease.Fence), sema.ErrInvalid)
		p.Release()
	})
}
