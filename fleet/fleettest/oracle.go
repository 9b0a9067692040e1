package fleettest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// oracleScripts compare a store with the model on random histories.
var oracleScripts = []script{
	{"behaves like the model", protocol.Config{}, func(s *client) { s.oracle(s.suite.Histories, false) }},
	{"behaves like the model as time passes and steps", protocol.Config{}, func(s *client) {
		s.needClock()
		s.oracle(s.suite.Histories/2, true)
	}},
}

// oracle runs histories, several at a time, because a remote store has time for more than one.
// With a stopped clock it runs one at a time.
func (s *client) oracle(histories int, timed bool) {
	workers := 4
	if timed {
		workers = 1
	}
	errs := make(chan error, workers)
	for range workers {
		go func() {
			errs <- explore(s.test, (histories+workers-1)/workers, func(t *rapid.T) { s.runHistory(t, timed) })
		}()
	}
	var shortest error // workers may find the same failure
	for range workers {
		if err := <-errs; err != nil && (shortest == nil || len(err.Error()) < len(shortest.Error())) {
			shortest = err
		}
	}
	s.must(shortest)
}

// runHistory runs one history. The text of a failure must not contain random names, so that rapid
// recognizes the failure when it shrinks the history.
func (s *client) runHistory(t *rapid.T, timed bool) {
	h := newHistory(t, s, timed)
	defer h.remove()
	defer func() {
		if err := failed(recover()); err != nil {
			t.Fatal(strings.ReplaceAll(err.Error(), h.name, "it"))
		}
	}()
	for _, some := range rapid.SliceOfN(rapid.SliceOfN(steps(h.config.TTL, timed), 1, 10), 1, 10).Draw(t, "history") {
		for _, st := range some {
			t.Log(st)
			h.must(h.do(st))
			h.must(h.checkModel())
		}
	}
	t.Log("at the end")
	h.must(h.compareSnapshots())
}

// checkModel checks the invariants of the model.
func (h *history) checkModel() error {
	if h.model == nil {
		return nil
	}
	if err := h.model.Check(); err != nil {
		return fmt.Errorf("the model is inconsistent: %w", err)
	}
	return nil
}

// A history applies the same steps to the store and to the model.
type history struct {
	client
	timed     bool
	model     *protocol.State // nil if the semaphore was deleted
	now       protocol.Micros // time of the model
	tombstone protocol.Seq
	sessions  []*sessionPair
	leases    []leasePair // whose grants were received
	names     names
}

// A sessionPair is a session in the store and in the model.
type sessionPair struct {
	store, model protocol.Session
	instance     string
	seq, acked   uint64
	ticket       protocol.Ticket
	last, older  *batchPair
}

// A batchPair is a batch for the store and for the model.
type batchPair struct{ store, model protocol.Batch }

func newHistory(t *rapid.T, s *client, timed bool) *history {
	h := &history{client: s.another(), timed: timed, now: 1}
	h.config = drawConfig(t, timed)
	h.config.Capacity = max(h.config.Capacity, 0)
	h.config.TTL, h.config.Protocol = long, protocol.Version
	if timed {
		h.config.TTL = micros(time.Minute)
		h.clock = &stoppedClock{s.clock.of, s.clock.at} // every history starts at the same time
		h.pass(0)
		h.now = protocol.Micros(h.clock.at.UnixMicro())
	}
	if rapid.IntRange(0, 5).Draw(t, "kind") == 5 {
		h.config.Kind, h.config.Window = protocol.Rate, long
		if timed {
			h.config.Window = h.config.TTL / 2
		}
	}
	if h.config.Kind == protocol.Concurrency && rapid.IntRange(0, 5).Draw(t, "numbered") == 5 {
		h.config.Numbered, h.config.Whole = true, 0
	}
	t.Logf("created with %+v", h.config)
	h.must(h.openBoth())
	h.must(h.openBoth())
	return h
}

func (h *history) do(s step) error {
	by := h.sessions[s.session%len(h.sessions)]
	switch s.do {
	case actSend:
		return h.sendBoth(by, h.translate(by, s.ops), s.unacked, false)
	case actEnd:
		return h.sendBoth(by, batchPair{}, 0, true)
	case actRepeat:
		return h.applyBoth(by, by.last)
	case actRepeatOlder:
		return h.applyBoth(by, by.older)
	case actOpen:
		return h.openBoth()
	case actInspect:
		return h.compareSnapshots()
	case actConfigure:
		return h.configureBoth(s.config, s.stale)
	case actRevoke:
		return h.revokeBoth(s.lease, s.atOnce)
	case actDelete:
		return h.deleteBoth()
	default:
		h.pass(time.Duration(s.time) * time.Microsecond)
		h.now += s.time
		return nil
	}
}

// openBoth opens a session, and creates the semaphore if it does not exist.
func (h *history) openBoth() error {
	if h.model == nil {
		model, err := protocol.New(h.now, h.config, h.tombstone)
		if err != nil {
			return err
		}
		h.model = model
	}
	m := &sessionPair{instance: fmt.Sprint("instance ", len(h.sessions)/2)} // some instances have two sessions
	var err error
	if m.model, _, err = h.model.Open(h.now, opener(m.instance), protocol.Version); err != nil {
		return err
	}
	m.store = h.openAs(m.instance)
	for _, other := range h.sessions {
		if other.store >= m.store {
			return errors.New("the number of a session is not higher than that of an earlier one")
		}
	}
	h.sessions = append(h.sessions, m)
	return nil
}

// translate returns the operations with the numbers of the store and of the model.
func (h *history) translate(by *sessionPair, ops []stepOp) (t batchPair) {
	for _, w := range ops {
		store, model := w.op, w.op
		switch w.op.Verb {
		case protocol.Cancel:
			store.Ticket = by.ticket - min(by.ticket, protocol.Ticket(w.place))
		case protocol.Release, protocol.Split, protocol.Settle:
			if w.place < len(h.leases) {
				lease := h.leases[len(h.leases)-1-w.place]
				store.Lease, model.Lease = lease.store, lease.model
			}
		}
		if w.op.Verb != protocol.Cancel && w.op.Verb != protocol.Release { // a rejected settlement has a result
			by.ticket++
			store.Ticket = by.ticket
		}
		model.Ticket = store.Ticket
		t.store.Ops, t.model.Ops = append(t.store.Ops, store), append(t.model.Ops, model)
	}
	return t
}

// sendBoth sends the next batch to both.
func (h *history) sendBoth(by *sessionPair, t batchPair, unacked int, end bool) error {
	by.seq++
	for _, b := range []*protocol.Batch{&t.store, &t.model} {
		b.Owner = owner
		b.Seq, b.Ack, b.End = by.seq, by.acked-min(by.acked, uint64(unacked)), end
	}
	t.store.Session, t.model.Session = by.store, by.model
	by.older, by.last = by.last, &t
	return h.applyBoth(by, &t)
}

// applyBoth sends a batch to both, and compares the replies.
func (h *history) applyBoth(by *sessionPair, t *batchPair) error {
	if t == nil {
		return nil
	}
	store := h.apply(t.store)
	model := protocol.Reply{Status: protocol.Unknown}
	if h.model != nil {
		model = h.model.Apply(h.now, t.model)
	}
	if err := h.compare(store, model); err != nil {
		return err
	}
	for _, f := range store.Results {
		by.acked = max(by.acked, f.N)
	}
	return nil
}

func (h *history) configureBoth(c protocol.Config, stale bool) error {
	if h.model == nil {
		return nil
	}
	c.Kind, c.Window, c.TTL, c.Protocol, c.Version = h.config.Kind, h.config.Window, h.config.TTL, protocol.Version, h.model.Snapshot().Config.Version
	if c.Numbered = h.config.Numbered; c.Numbered {
		c.Whole = 0
	}
	if stale {
		c.Version--
	}
	store := h.store.Administer(h.ctx, h.name, fleet.Command{Configure: &c})
	_, model := h.model.Configure(h.now, c)
	if (store == nil) != (model == nil) || errors.Is(model, protocol.ErrConflict) && !errors.Is(store, protocol.ErrConflict) {
		return fmt.Errorf("change: error %w in the store, %w in the model", store, model)
	}
	return nil
}

// revokeBoth revokes a lease in both.
func (h *history) revokeBoth(place int, atOnce bool) error {
	if h.model == nil || place >= len(h.leases) {
		return nil
	}
	lease := h.leases[len(h.leases)-1-place]
	store := h.revoke(lease.store, atOnce)
	if !errors.Is(store, fs.ErrNotExist) {
		h.must(store)
	}
	if model := h.model.Revoke(h.now, lease.model, atOnce, revocation(lease.model, atOnce).Note()); model != (store == nil) {
		return fmt.Errorf("the revoked lease existed: %t, in the model: %t", store == nil, model)
	}
	return nil
}

// deleteBoth deletes the semaphore in both.
func (h *history) deleteBoth() error {
	if h.model == nil {
		return nil
	}
	h.tombstone = h.model.Tombstone()
	h.model = nil
	return h.store.Administer(h.ctx, h.name, fleet.Command{Delete: true})
}
