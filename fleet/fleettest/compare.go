package fleettest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

// A leasePair is the numbers of one lease in the store and in the model. A store may skip numbers.
type leasePair struct{ store, model protocol.Seq }

// names are the known pairs, in order. They translate leases of the store to those of the
// model.
type names []leasePair

// add adds a pair. It fails unless store and model number leases in the same order.
func (n *names) add(store, model protocol.Seq) error {
	i, known := slices.BinarySearchFunc(*n, store, func(p leasePair, e protocol.Seq) int { return cmp.Compare(p.store, e) })
	switch {
	case known && (*n)[i].model == model:
		return nil
	case known, i > 0 && (*n)[i-1].model >= model, i < len(*n) && (*n)[i].model <= model:
		return fmt.Errorf("model lease %d: its number in the store is out of order or belongs to another lease", model)
	}
	*n = slices.Insert(*n, i, leasePair{store, model})
	return nil
}

// known reports whether two numbers are known to be the same lease.
func (n names) known(store, model protocol.Seq) bool {
	return slices.Contains(n, leasePair{store, model})
}

// compare compares replies. If the session does not exist, only the status is compared.
func (h *history) compare(store, model protocol.Reply) error {
	if store.Status != model.Status {
		return fmt.Errorf("status %d, want %d as in the model", store.Status, model.Status)
	}
	if model.Status == protocol.Unknown {
		return nil
	}
	if !slices.Equal(kindsOf(store.Results), kindsOf(model.Results)) {
		return fmt.Errorf("results %v, want %v as in the model", kindsOf(store.Results), kindsOf(model.Results))
	}
	for i, f := range store.Results {
		if err := h.compareResults(f, model.Results[i]); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	if e, m := plain(store), plain(model); !reflect.DeepEqual(e, m) {
		return fmt.Errorf("reply without results %+v, want %+v as in the model", e, m)
	}
	// A shorter Next does no harm, but the store must not set it where the model does not.
	if (store.Next > 0) != (model.Next > 0) || store.Next > model.Next {
		return fmt.Errorf("next batch within %d µs, want %d as in the model", store.Next, model.Next)
	}
	return nil
}

// plain returns the part of a reply that is the same for every store. It excludes the results,
// which contain numbers, and what depends on how the store keeps time.
func plain(r protocol.Reply) protocol.Reply {
	r.Results, r.Next, r.Valid = nil, 0, 0
	return r
}

func (h *history) compareResults(store, model protocol.Result) error {
	if model.Lease != 0 {
		if err := h.names.add(store.Lease, model.Lease); err != nil {
			return err
		}
		if seen := (leasePair{store.Lease, model.Lease}); model.Kind == protocol.Granted && !slices.Contains(h.leases, seen) {
			h.leases = append(h.leases, seen)
		}
	}
	if model.Kind == protocol.Granted {
		if err := h.compareFences(store.Fence, model.Fence); err != nil {
			return err
		}
	}
	store.Lease, store.Fence, model.Fence = model.Lease, protocol.Fence{}, protocol.Fence{}
	if !reflect.DeepEqual(store, model) {
		return fmt.Errorf("%+v, want %+v as in the model", store, model)
	}
	return nil
}

// compareFences compares fences by the known leases: whether each is below or at the floor,
// and whether it is revoked.
func (h *history) compareFences(store, model protocol.Fence) error {
	if !h.names.known(store.Seq, model.Seq) {
		return errors.New("the fence is of another lease")
	}
	if model.Exact && !store.Exact {
		return errors.New("the fence does not list the revoked leases")
	}
	for _, p := range h.names {
		if p.model >= model.Seq {
			break
		}
		if cmp.Compare(p.store, store.Floor) != cmp.Compare(p.model, model.Floor) {
			return fmt.Errorf("the floor is not %d as in the model: see lease %d", model.Floor, p.model)
		}
		if p.model >= model.Floor && revokes(store, p.store) != revokes(model, p.model) {
			return fmt.Errorf("lease %d is revoked: %t, want %t as in the model", p.model, revokes(store, p.store), revokes(model, p.model))
		}
	}
	if store.Floor > store.Seq || revokes(store, store.Seq) {
		return errors.New("the fence excludes its own lease")
	}
	return nil
}

// compareSnapshots compares the snapshots of store and model.
func (h *history) compareSnapshots() error {
	store, err := h.store.Inspect(h.ctx, h.name)
	if h.model == nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("inspecting the deleted semaphore: error %w, want fs.ErrNotExist", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	model := h.model.Inspect(h.now)
	if store.Config != model.Config || store.InUse != model.InUse || store.Effective != model.Effective {
		return fmt.Errorf("the store has %+v, %d in use of %d; the model has %+v, %d of %d",
			store.Config, store.InUse, store.Effective, model.Config, model.InUse, model.Effective)
	}
	if err := h.compareSessions(store.Sessions, model.Sessions); err != nil {
		return err
	}
	if err := h.compareLeases(store.Leases, model.Leases); err != nil {
		return err
	}
	if len(store.Queue) != len(model.Queue) {
		return fmt.Errorf("%d queued, the model has %d", len(store.Queue), len(model.Queue))
	}
	for i, e := range store.Queue {
		m := model.Queue[i]
		if !h.timed {
			e.Since = m.Since
		}
		if e.Session = h.inModel(e.Session); e != m {
			return fmt.Errorf("queued at %d is %+v, the model has %+v", i, e, m)
		}
	}
	return nil
}

func (h *history) compareSessions(store, model []protocol.SessionInfo) error {
	var both [2][]protocol.SessionInfo
	for i, some := range [][]protocol.SessionInfo{store, model} {
		for _, info := range some {
			if i == 0 {
				info.Session = h.inModel(info.Session)
			}
			if !h.timed {
				info.Renewed = 0
			}
			info.Owner.Key = protocol.Key{} // a service shows no keys
			both[i] = append(both[i], info)
		}
		slices.SortFunc(both[i], func(a, b protocol.SessionInfo) int { return cmp.Compare(a.Session, b.Session) })
	}
	if !slices.Equal(both[0], both[1]) {
		return fmt.Errorf("the sessions are %+v, the model has %+v", both[0], both[1])
	}
	return nil
}

func (h *history) compareLeases(store, model []protocol.LeaseInfo) error {
	if len(store) != len(model) {
		return fmt.Errorf("%d leases, the model has %d", len(store), len(model))
	}
	for i, e := range store {
		m := model[i]
		if err := h.names.add(e.Seq, m.Seq); err != nil {
			return err
		}
		e.Seq, e.Session = m.Seq, h.inModel(e.Session)
		if !h.timed {
			e.Since = m.Since
		}
		if e != m {
			return fmt.Errorf("lease %+v, the model has %+v", e, m)
		}
	}
	return nil
}

// inModel returns the number of a session in the model, 0 if there is none.
func (h *history) inModel(store protocol.Session) protocol.Session {
	for _, m := range h.sessions {
		if m.store == store {
			return m.model
		}
	}
	return 0
}
