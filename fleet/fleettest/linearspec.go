package fleettest

import (
	"cmp"
	"hash/maphash"
	"reflect"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/sema-go/sema/fleet/protocol"
)

// spec returns the model for porcupine. A state is a *protocol.Image, which is never changed.
func (r *race) spec() porcupine.Model {
	numbers := map[string]protocol.Seq{}
	for seq, name := range r.names {
		numbers[name] = seq
	}
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return canonical(r.init) },
		Step: func(state, input, output any) (bool, any) {
			model, err := protocol.Restore(*state.(*protocol.Image))
			if err != nil {
				return false, state
			}
			ok := r.step(model, input.(call), output.(callOutput)) && ascending(model.Snapshot().Leases, numbers)
			return ok, canonical(model.Image())
		},
		Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
		Hash: func(state any) uint64 {
			im := state.(*protocol.Image)
			var h maphash.Hash
			h.SetSeed(seed)
			maphash.WriteComparable(&h, im.LastSeq)
			for _, one := range im.Sessions {
				maphash.WriteComparable(&h, one.Seq)
			}
			for _, one := range im.Leases {
				maphash.WriteComparable(&h, one)
			}
			for _, one := range im.Queue {
				maphash.WriteComparable(&h, one)
			}
			return h.Sum64()
		},
	}
}

// canonical returns an image without what depends on which session sent last. That does not
// matter, because time plays no part.
func canonical(im protocol.Image) *protocol.Image {
	slices.SortFunc(im.Sessions, func(a, b protocol.SessionImage) int { return cmp.Compare(a.ID, b.ID) })
	for i := range im.Sessions {
		im.Sessions[i].Renewal = 0
	}
	im.Renewals = 0
	return &im
}

// step applies a call to the model and reports whether its output is the same.
func (r *race) step(model *protocol.State, in call, out callOutput) bool {
	switch {
	case in.inspect:
		return sameSnapshots(out.snapshot, model.Inspect(0))
	case in.config != nil:
		_, err := model.Configure(0, *in.config)
		return out.conflict == (err != nil)
	}
	b := in.batch
	b.Ops = slices.Clone(b.Ops)
	leases := map[string]protocol.Seq{}
	for _, l := range model.Snapshot().Leases {
		leases[l.Details.Holder] = l.Seq
	}
	for i, op := range b.Ops {
		if op.Verb == protocol.Release {
			b.Ops[i].Lease = leases[r.names[op.Lease]]
		}
	}
	return r.sameReplies(out.reply, model.Apply(0, b), model.Snapshot().Leases)
}

func (r *race) sameReplies(store, model protocol.Reply, live []protocol.LeaseInfo) bool {
	if !reflect.DeepEqual(plain(store), plain(model)) || len(store.Results) != len(model.Results) {
		return false
	}
	for i, e := range store.Results {
		m := model.Results[i]
		if e.N != m.N || e.Kind != m.Kind || e.Ticket != m.Ticket || e.Weight != m.Weight {
			return false
		}
		if e.Kind == protocol.Granted && !r.separates(e.Fence, live) {
			return false
		}
	}
	return true
}

// separates reports whether a fence separates live leases from ended ones, among the known leases.
func (r *race) separates(f protocol.Fence, live []protocol.LeaseInfo) bool {
	isLive := map[string]bool{}
	for _, l := range live {
		isLive[l.Details.Holder] = true
	}
	for seq, name := range r.names {
		if seq < f.Seq && isLive[name] == (seq < f.Floor || revokes(f, seq)) {
			return false
		}
	}
	return f.Floor <= f.Seq
}

// ascending reports whether the store has numbered leases in the order of their grants.
func ascending(live []protocol.LeaseInfo, numbers map[string]protocol.Seq) bool {
	last := protocol.Seq(0)
	for _, l := range live {
		seq, known := numbers[l.Details.Holder]
		if known && seq <= last {
			return false
		}
		last = max(last, seq)
	}
	return true
}

func sameSnapshots(store, model protocol.Snapshot) bool {
	if store.Config != model.Config || store.InUse != model.InUse || store.Effective != model.Effective {
		return false
	}
	return slices.EqualFunc(store.Leases, model.Leases, func(e, m protocol.LeaseInfo) bool {
		return e.Details == m.Details && e.Weight == m.Weight && e.Pooled == m.Pooled
	}) && slices.EqualFunc(store.Queue, model.Queue, func(e, m protocol.TicketInfo) bool {
		return e.Details == m.Details && e.Ticket == m.Ticket && e.Weight == m.Weight
	})
}
