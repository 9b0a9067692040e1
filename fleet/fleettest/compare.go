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

// A pair is one lease, as both number it. An engine may leave numbers out.
type pair struct{ engine, model protocol.Seq }

// names are the pairs there are, in order, by which what one says is said in
// terms of the other.
type names []pair

// learn notes a pair. It fails unless leases are numbered in the same order by
// both.
func (n *names) learn(engine, model protocol.Seq) error {
	i, known := slices.BinarySearchFunc(*n, engine, func(p pair, e protocol.Seq) int { return cmp.Compare(p.engine, e) })
	switch {
	case known && (*n)[i].model == model:
		return nil
	case known, i > 0 && (*n)[i-1].model >= model, i < len(*n) && (*n)[i].model <= model:
		return fmt.Errorf("what the model calls lease %d has a number that is out of order or another's", model)
	}
	*n = slices.Insert(*n, i, pair{engine, model})
	return nil
}

// known reports whether these are the same.
func (n names) known(engine, model protocol.Seq) bool { return slices.Contains(n, pair{engine, model}) }

// compare compares replies. Of one that is not for a session that lives, only
// the status counts.
func (h *history) compare(engine, model protocol.Reply) error {
	if engine.Status != model.Status {
		return fmt.Errorf("status %d, the model says %d", engine.Status, model.Status)
	}
	if model.Status == protocol.Unknown {
		return nil
	}
	if !slices.Equal(kindsOf(engine.Results), kindsOf(model.Results)) {
		return fmt.Errorf("results %v, the model says %v", kindsOf(engine.Results), kindsOf(model.Results))
	}
	for i, f := range engine.Results {
		if err := h.compareResults(f, model.Results[i]); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	if e, m := plain(engine), plain(model); !reflect.DeepEqual(e, m) {
		return fmt.Errorf("apart from results, the engine says %+v, the model %+v", e, m)
	}
	// To be told to speak earlier does no harm, but nobody is told who need not.
	if (engine.Next > 0) != (model.Next > 0) || engine.Next > model.Next {
		return fmt.Errorf("speak again within %d µs, the model says %d", engine.Next, model.Next)
	}
	return nil
}

// plain is what of a reply is the same with every engine: not the results, which
// have names in them, nor what depends on how the engine keeps time.
func plain(r protocol.Reply) protocol.Reply {
	r.Results, r.Next, r.Valid = nil, 0, 0
	return r
}

func (h *history) compareResults(engine, model protocol.Result) error {
	if model.Lease != 0 {
		if err := h.names.learn(engine.Lease, model.Lease); err != nil {
			return err
		}
		if told := (pair{engine.Lease, model.Lease}); model.Kind == protocol.Granted && !slices.Contains(h.leases, told) {
			h.leases = append(h.leases, told)
		}
	}
	if model.Kind == protocol.Granted {
		if err := h.compareFences(engine.Fence, model.Fence); err != nil {
			return err
		}
	}
	engine.Lease, engine.Fence, model.Fence = model.Lease, protocol.Fence{}, protocol.Fence{}
	if !reflect.DeepEqual(engine, model) {
		return fmt.Errorf("%+v, the model says %+v", engine, model)
	}
	return nil
}

// compareFences compares what fences say of the leases that are known: who is
// below the floor, or at it, and who is revoked.
func (h *history) compareFences(engine, model protocol.Fence) error {
	if !h.names.known(engine.Seq, model.Seq) {
		return errors.New("the fence is of another lease")
	}
	if model.Exact && !engine.Exact {
		return errors.New("the fence does not tell who is revoked")
	}
	for _, p := range h.names {
		if p.model >= model.Seq {
			break
		}
		if cmp.Compare(p.engine, engine.Floor) != cmp.Compare(p.model, model.Floor) {
			return fmt.Errorf("the floor is not %d, as the model says: see lease %d", model.Floor, p.model)
		}
		if p.model >= model.Floor && revokes(engine, p.engine) != revokes(model, p.model) {
			return fmt.Errorf("lease %d is revoked: %t; the model says %t", p.model, revokes(engine, p.engine), revokes(model, p.model))
		}
	}
	if engine.Floor > engine.Seq || revokes(engine, engine.Seq) {
		return errors.New("the fence refuses its own lease")
	}
	return nil
}

// look compares all there is to see.
func (h *history) look() error {
	engine, err := h.store.Inspect(h.ctx, h.name)
	if h.model == nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it was deleted, but error %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	model := h.model.Inspect(h.now)
	if engine.Config != model.Config || engine.InUse != model.InUse || engine.Effective != model.Effective {
		return fmt.Errorf("the engine has %+v, %d in use of %d; the model %+v, %d of %d",
			engine.Config, engine.InUse, engine.Effective, model.Config, model.InUse, model.Effective)
	}
	if err := h.compareSessions(engine.Sessions, model.Sessions); err != nil {
		return err
	}
	if err := h.compareLeases(engine.Leases, model.Leases); err != nil {
		return err
	}
	if len(engine.Queue) != len(model.Queue) {
		return fmt.Errorf("%d in line, the model has %d", len(engine.Queue), len(model.Queue))
	}
	for i, e := range engine.Queue {
		m := model.Queue[i]
		if !h.timed {
			e.Since = m.Since
		}
		if e.Session = h.inModel(e.Session); e != m {
			return fmt.Errorf("in line at %d is %+v, the model has %+v", i, e, m)
		}
	}
	return nil
}

func (h *history) compareSessions(engine, model []protocol.SessionInfo) error {
	var both [2][]protocol.SessionInfo
	for i, some := range [][]protocol.SessionInfo{engine, model} {
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

func (h *history) compareLeases(engine, model []protocol.LeaseInfo) error {
	if len(engine) != len(model) {
		return fmt.Errorf("%d leases, the model has %d", len(engine), len(model))
	}
	for i, e := range engine {
		m := model[i]
		if err := h.names.learn(e.Seq, m.Seq); err != nil {
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

// inModel is a session's number in the model, 0 if there is none.
func (h *history) inModel(engine protocol.Session) protocol.Session {
	for _, m := range h.sessions {
		if m.engine == engine {
			return m.model
		}
	}
	return 0
}
