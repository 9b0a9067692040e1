package fleet

import (
	"slices"
	"sync"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Fence distinguishes live leases from ended ones, however many are live at a time. Send
// it with every write to the resource that the permit protects; see [Guard]. It is the
// protocol's type, so that it can be sent unchanged. Of a semaphore with one permit, Seq alone
// is a fencing token: each later lease has a higher one.
type Fence = protocol.Fence

// A Guard protects a resource: it rejects writes with the fence of a lease that has ended,
// and never rejects a live lease. Pass it the fence of the permit ([LeaseOf]) with every
// write. The zero Guard is ready to use. Keep one Guard for each semaphore that protects
// the resource, in the process that owns the resource: a new Guard admits every lease until a
// later one has presented its fence. A resource without such a process, such as a table,
// compares Seq and Floor of the fence itself; docs/fleet.md has the statement. Permits of a
// rate, and of a local limit, have no fence.
type Guard struct {
	mu      sync.Mutex
	floor   protocol.Seq
	revoked []protocol.Range // sorted, disjoint, none below floor
}

// Admit fails with [sema.ErrLost] if an admitted fence shows that the lease of f has ended:
// a lease that was granted later has presented its fence here. It fails with
// [sema.ErrInvalid] if the fence is zero.
func (g *Guard) Admit(f Fence) error {
	if f.Seq == 0 {
		return &sema.Error{Op: "write", Err: sema.ErrInvalid, Detail: "the permit has no fence", Advice: "permits of a rate, of a local limit and of other scopes have none; check the result of LeaseOf"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.Seq < g.floor || g.isRevokedLocked(f.Seq) {
		return &sema.Error{Op: "write", Err: sema.ErrLost, Detail: "the lease had ended when a later one was granted"}
	}
	g.floor = max(g.floor, f.Floor)
	for _, r := range f.Revoked {
		g.revokeLocked(r)
	}
	g.revoked = slices.DeleteFunc(g.revoked, func(r protocol.Range) bool { return r.To < g.floor })
	return nil
}

func (g *Guard) isRevokedLocked(seq protocol.Seq) bool {
	i, found := g.findLocked(seq)
	return found || i > 0 && g.revoked[i-1].To >= seq
}

// findLocked returns the index of the first range that begins at or after seq.
func (g *Guard) findLocked(seq protocol.Seq) (int, bool) {
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

// revokeLocked adds a range, and merges it with overlapping and adjacent ones.
func (g *Guard) revokeLocked(r protocol.Range) {
	from, _ := g.findLocked(r.From)
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
