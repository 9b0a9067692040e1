package fleet

import (
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Guard is for what fleet permits protect: it refuses those who are known not
// to hold one any more, whatever they believe, and nobody who does. Show it the
// fence of a permit ([LeaseOf]) with every write. The zero Guard is ready; keep
// one for each semaphore that protects the resource, and keep it with the
// resource. Permits of a rate are spent, not held, and those of a local limit
// are unknown to everybody else: they have no fence, and no guard is for them.
type Guard struct {
	mu      sync.Mutex
	floor   protocol.Seq
	revoked []protocol.Range // in order, apart, none below floor
}

// Admit fails with [sema.ErrLost] if the fence is of a lease that was gone before
// one that was shown here was granted, and with [sema.ErrInvalid] if it is none.
func (g *Guard) Admit(f protocol.Fence) error {
	if f.Seq == 0 {
		return &sema.Error{Op: "write", Err: sema.ErrInvalid, Detail: "the permit has no fence: it is of a rate, or of a local limit, or not a fleet semaphore's; see what LeaseOf says"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.Seq < g.floor || g.isRevoked(f.Seq) {
		return &sema.Error{Op: "write", Err: sema.ErrLost, Detail: "somebody else was granted the permit since"}
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
