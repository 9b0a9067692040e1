package fleet

import (
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Fence tells the leases that are live from those that have ended, however many are
// live at a time. Send it with every write to what the permit protects; see [Guard]. It
// is the one of the protocol, so that it can be sent as it is.
type Fence = protocol.Fence

// A Guard protects what fleet permits are for: it rejects writes with the fence of a
// lease that has ended, and never rejects a live lease. Show it the fence of a permit
// ([LeaseOf]) with every write. The zero Guard is ready; keep one for each semaphore
// that protects the resource, and keep it with the resource. Permits of a rate, and
// those of a local limit, have no fence.
type Guard struct {
	mu      sync.Mutex
	floor   protocol.Seq
	revoked []protocol.Range // in order, apart, none below floor
}

// Admit fails with [sema.ErrLost] if the fence is of a lease that had ended before one
// that was shown here was granted, and with [sema.ErrInvalid] if it is none.
func (g *Guard) Admit(f Fence) error {
	if f.Seq == 0 {
		return &sema.Error{Op: "write", Err: sema.ErrInvalid, Detail: "the permit has no fence", Advice: "permits of a rate, of a local limit and of other scopes have none; check the result of LeaseOf"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.Seq < g.floor || g.isRevoked(f.Seq) {
		return &sema.Error{Op: "write", Err: sema.ErrLost, Detail: "the lease had ended when a later one was granted"}
	}
	g.floor = max(g.floor, f.Floor)
	for _, r := range f.Revoked {
		g.revoke(r)
	}
	g.revoked = slices.DeleteFunc(g.revoked, func(r protocol.Range) bool { return r.To < g.floor })
	return nil
}

func (g *Guard) isRevoked(seq protocol.Seq) bool {
	i, found := g.find(seq)
	return found || i > 0 && g.revoked[i-1].To >= seq
}

// find is where the first range is that begins at or after seq.
func (g *Guard) find(seq protocol.Seq) (int, bool) {
	return slices.BinarySearchFunc(g.revoked, seq, func(r protocol.Range, seq protocol.Seq) int {
		switch {
		case r.From < seq:
			return -1
		case r.From > seq:
			return 1
		}
		return 0
	})
}

// revoke adds a range, joined with those it touches.
func (g *Guard) revoke(r protocol.Range) {
	from, _ := g.find(r.From)
	if from > 0 && g.revoked[from-1].To+1 >= r.From {
		from--
		r.From = g.revoked[from].From
	}
	to := from
	for to < len(g.revoked) && g.revoked[to].From <= r.To+1 {
		r.To = max(r.To, g.revoked[to].To)
		to++
	}
	g.revoked = slices.Replace(g.revoked, from, to, r)
}
