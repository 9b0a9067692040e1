package protocol_test

import (
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// A ledger checks the settlements of a rate independently of the state: what each grant costs
// according to the settlements that were applied, and that nothing is granted beyond the
// capacity.
type ledger struct {
	cost    map[protocol.Seq]int64 // of the grants and charges in the window
	settled int                    // settlements that changed a cost
	charges int                    // settlements of grants that had left the window
}

// apply checks the effect of a batch, given the spending before and after it.
func (l *ledger) apply(w *world, b protocol.Batch, r protocol.Reply, before, after []protocol.SpentImage) {
	if l.cost == nil {
		l.cost = map[protocol.Seq]int64{}
	}
	index := func(list []protocol.SpentImage, seq protocol.Seq) int {
		return slices.IndexFunc(list, func(s protocol.SpentImage) bool { return s.Seq == seq })
	}
	for _, s := range before { // granted when a session was opened or had expired
		if _, known := l.cost[s.Seq]; !known {
			l.cost[s.Seq] = s.Weight
		}
	}
	raised, cancels := int64(0), false
	var charged []int64
	if r.Status == protocol.Applied && !b.End {
		for _, op := range b.Ops {
			cancels = cancels || op.Verb == protocol.Cancel
			if op.Verb != protocol.Settle {
				continue
			}
			cost, at := min(op.Weight, w.capacity), index(after, op.Lease)
			switch {
			case at >= 0 && after[at].Session == b.Session:
				raised += max(0, cost-l.cost[op.Lease])
				l.cost[op.Lease] = cost
				l.settled++
			case at < 0 && cost > op.Least:
				charged = append(charged, cost-op.Least)
				l.charges++
			}
		}
	}
	sum, granted := int64(0), 0
	for _, s := range after {
		sum += s.Weight
		if index(before, s.Seq) < 0 {
			grant := s.Session != b.Session || r.Status != protocol.Applied || cancels && s.Weight == 0 || slices.ContainsFunc(r.Results, func(f protocol.Result) bool { return f.Lease == s.Seq && f.Kind == protocol.Granted })
			if i := slices.Index(charged, s.Weight); !grant && i >= 0 {
				charged = slices.Delete(charged, i, i+1)
				raised += s.Weight
			} else if !grant {
				w.fail("grant %d of %d comes from nowhere", s.Seq, s.Weight)
			} else {
				granted++
			}
			if _, known := l.cost[s.Seq]; !known {
				l.cost[s.Seq] = s.Weight
			}
		}
		if cancels && s.Session == b.Session && s.Weight == 0 && l.cost[s.Seq] != 0 { // the acquire was cancelled, and had been granted
			l.cost[s.Seq] = 0
		}
		if s.Weight != l.cost[s.Seq] {
			w.fail("grant %d costs %d at the store, settled at %d", s.Seq, s.Weight, l.cost[s.Seq])
		}
	}
	if len(charged) > 0 {
		w.fail("the store has not charged %d", charged)
	}
	if granted > 0 && sum-raised > w.capacity {
		w.fail("%d grants although %d of %d are used", granted, sum-raised, w.capacity)
	}
}

// settle settles a grant of a rate at a random cost, once. Most clients do it while the grant
// is in the window, some when it has left that.
func (c *client) settle(epoch int, f protocol.Result) {
	c.after(epoch, c.world.between(0, 2*ttl), func() {
		c.ticket++
		c.peer.Request(protocol.Op{Verb: protocol.Settle, Ticket: c.ticket, Lease: f.Lease, Least: f.Weight, Weight: c.world.rng.Int64N(5)})
	})
}
