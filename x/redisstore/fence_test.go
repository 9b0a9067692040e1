package redisstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestFence_ExactAmongManyLeases checks the ranges of fences when the script searches for
// them by counting, and when it gives up and reads all leases.
func TestFence_ExactAmongManyLeases(t *testing.T) {
	t.Parallel()
	store := openServer(t, redistest.Start(t))
	const leases = 300
	for what, released := range map[string]func(i int) bool{
		"none":                func(int) bool { return false },
		"the first":           func(i int) bool { return i == 0 },
		"one in the middle":   func(i int) bool { return i == 137 },
		"a range":             func(i int) bool { return i >= 101 && i < 200 },
		"the last":            func(i int) bool { return i == leases-1 },
		"two ranges":          func(i int) bool { return i > 20 && i < 90 || i >= 250 },
		"every second":        func(i int) bool { return i%2 == 1 },
		"most, in two ranges": func(i int) bool { return i > 2 && i < 120 || i > 121 && i < 240 },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := "fences of " + what
			by := protocol.Opener{Client: protocol.Client{Instance: what}, Owner: protocol.Owner{Key: protocol.NewKey()}}
			id, _, err := store.Open(ctx, name, protocol.Config{Capacity: 1000, TTL: 60e6}, by)
			if err != nil {
				t.Fatal(err)
			}
			var seq, ack uint64
			var ticket protocol.Ticket
			send := func(ops ...protocol.Op) []protocol.Result {
				t.Helper()
				seq++
				r, err := store.Apply(ctx, name, protocol.Batch{Session: id, Owner: by.Owner, Seq: seq, Ack: ack, Ops: ops})
				if err != nil || r.Status != protocol.Applied {
					t.Fatal(err, r.Status)
				}
				ack += uint64(len(r.Results))
				return r.Results
			}
			acquire := func(n int) (ops []protocol.Op) {
				for range n {
					ticket++
					ops = append(ops, sessiontest.Acquire(ticket, 1))
				}
				return ops
			}
			var live []protocol.Seq
			var ends []protocol.Op
			for i, r := range send(acquire(leases)...) {
				if released(i) {
					ends = append(ends, protocol.Op{Verb: protocol.Release, Lease: r.Lease})
				} else {
					live = append(live, r.Lease)
				}
			}
			if len(ends) > 0 {
				send(ends...)
			}
			for _, r := range send(acquire(3)...) {
				live = append(live, r.Lease)
				if got, want := fmt.Sprint(r.Fence), fmt.Sprint(fenceOf(r.Lease, live)); got != want {
					t.Errorf("fence %s, want %s", got, want)
				}
			}
		})
	}
}

// fenceOf returns the fence of a lease, given the live ones up to it.
func fenceOf(seq protocol.Seq, live []protocol.Seq) protocol.Fence {
	f := protocol.Fence{Seq: seq, Floor: slices.Min(live), Exact: true}
	for at := f.Floor; at <= seq; at++ {
		if slices.Contains(live, at) {
			continue
		}
		if n := len(f.Revoked); n > 0 && f.Revoked[n-1].To == at-1 {
			f.Revoked[n-1].To = at
		} else {
			f.Revoked = append(f.Revoked, protocol.Range{From: at, To: at})
		}
	}
	return f
}
