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

// oracleScripts compare an engine with the model on random histories.
var oracleScripts = []script{
	{"behaves like the model", protocol.Config{}, func(s *speaker) { s.oracle(s.suite.Histories, false) }},
	{"behaves like the model as time passes and steps", protocol.Config{}, func(s *speaker) {
		s.needClock()
		s.oracle(s.suite.Histories/2, true)
	}},
}

// oracle leads the engine through histories, some at a time: an engine that is
// far away has time for more than one. A clock that is stopped is the clock of
// one only.
func (s *speaker) oracle(histories int, timed bool) {
	workers := 4
	if timed {
		workers = 1
	}
	errs := make(chan error, workers)
	for range workers {
		go func() {
			errs <- explore(s.test, (histories+workers-1)/workers, func(t *rapid.T) { s.relive(t, timed) })
		}()
	}
	var shortest error // of what may be as many times the same
	for range workers {
		if err := <-errs; err != nil && (shortest == nil || len(err.Error()) < len(shortest.Error())) {
			shortest = err
		}
	}
	s.must(shortest)
}

// relive is one history. What it says when it fails has no names in it that are
// others each time, so that rapid knows the failure again.
func (s *speaker) relive(t *rapid.T, timed bool) {
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
	t.Log("in the end")
	h.must(h.look())
}

// checkModel is for the day on which it is the model that is wrong.
func (h *history) checkModel() error {
	if h.model == nil {
		return nil
	}
	if err := h.model.Check(); err != nil {
		return fmt.Errorf("the model itself is broken: %w", err)
	}
	return nil
}

// A history is done to the engine and to the model alike.
type history struct {
	speaker
	timed    bool
	model    *protocol.State // nil if it was deleted
	now      protocol.Micros // the model's
	grave    protocol.Seq
	sessions []*member
	leases   []pair // that were told of
	names    names
}

// A member is a session, as both know it.
type member struct {
	engine, model protocol.Session
	instance      string
	seq, heard    uint64
	ticket        protocol.Ticket
	last, older   *twin
}

// A twin is a batch, as it is said to both.
type twin struct{ engine, model protocol.Batch }

func newHistory(t *rapid.T, s *speaker, timed bool) *history {
	h := &history{speaker: s.another(), timed: timed, now: 1}
	h.config = change(t, timed)
	h.config.Capacity = max(h.config.Capacity, 0)
	h.config.TTL, h.config.Protocol = long, protocol.Version
	if timed {
		h.config.TTL = micros(time.Minute)
		h.clock = &stopped{s.clock.of, s.clock.at} // from the same time each time
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
	h.must(h.begin())
	h.must(h.begin())
	return h
}

func (h *history) do(s step) error {
	who := h.sessions[s.who%len(h.sessions)]
	switch s.do {
	case say:
		return h.say(who, h.wish(who, s.wishes), s.unheard, false)
	case bye:
		return h.say(who, twin{}, 0, true)
	case again:
		return h.repeat(who, who.last)
	case older:
		return h.repeat(who, who.older)
	case open:
		return h.begin()
	case look:
		return h.look()
	case configure:
		return h.reconfigure(s.config, s.stale)
	case revoke:
		return h.take(s.lease, s.atOnce)
	case remove:
		return h.end()
	default:
		h.pass(time.Duration(s.time) * time.Microsecond)
		h.now += s.time
		return nil
	}
}

// begin opens a session, and makes the semaphore if it is not there.
func (h *history) begin() error {
	if h.model == nil {
		model, err := protocol.New(h.now, h.config, h.grave)
		if err != nil {
			return err
		}
		h.model = model
	}
	m := &member{instance: fmt.Sprint("instance ", len(h.sessions)/2)} // some have two
	var err error
	if m.model, _, err = h.model.Open(h.now, opener(m.instance), protocol.Version); err != nil {
		return err
	}
	m.engine = h.openAs(m.instance)
	for _, other := range h.sessions {
		if other.engine >= m.engine {
			return errors.New("a session has a number that is not higher than that of an earlier one")
		}
	}
	h.sessions = append(h.sessions, m)
	return nil
}

// wish is the ops in the names of both.
func (h *history) wish(who *member, wishes []wish) (t twin) {
	for _, w := range wishes {
		engine, model := w.op, w.op
		switch w.op.Verb {
		case protocol.Cancel:
			engine.Ticket = who.ticket - min(who.ticket, protocol.Ticket(w.place))
		case protocol.Release, protocol.Split, protocol.Settle:
			if w.place < len(h.leases) {
				lease := h.leases[len(h.leases)-1-w.place]
				engine.Lease, model.Lease = lease.engine, lease.model
			}
		}
		if w.op.Verb != protocol.Cancel && w.op.Verb != protocol.Release { // a settlement gets a result if it is rejected
			who.ticket++
			engine.Ticket = who.ticket
		}
		model.Ticket = engine.Ticket
		t.engine.Ops, t.model.Ops = append(t.engine.Ops, engine), append(t.model.Ops, model)
	}
	return t
}

// say says the next batch to both.
func (h *history) say(who *member, t twin, unheard int, bye bool) error {
	who.seq++
	for _, b := range []*protocol.Batch{&t.engine, &t.model} {
		b.Owner = owner
		b.Seq, b.Ack, b.End = who.seq, who.heard-min(who.heard, uint64(unheard)), bye
	}
	t.engine.Session, t.model.Session = who.engine, who.model
	who.older, who.last = who.last, &t
	return h.repeat(who, &t)
}

// repeat says a batch to both, and compares what they answer.
func (h *history) repeat(who *member, t *twin) error {
	if t == nil {
		return nil
	}
	engine := h.apply(t.engine)
	model := protocol.Reply{Status: protocol.Unknown}
	if h.model != nil {
		model = h.model.Apply(h.now, t.model)
	}
	if err := h.compare(engine, model); err != nil {
		return err
	}
	for _, f := range engine.Results {
		who.heard = max(who.heard, f.N)
	}
	return nil
}

func (h *history) reconfigure(c protocol.Config, stale bool) error {
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
	engine := h.store.Administer(h.ctx, h.name, fleet.Command{Configure: &c})
	_, model := h.model.Configure(h.now, c)
	if (engine == nil) != (model == nil) || errors.Is(model, protocol.ErrConflict) && !errors.Is(engine, protocol.ErrConflict) {
		return fmt.Errorf("to the change the engine says %w, the model %w", engine, model)
	}
	return nil
}

// take revokes a lease.
func (h *history) take(place int, atOnce bool) error {
	if h.model == nil || place >= len(h.leases) {
		return nil
	}
	lease := h.leases[len(h.leases)-1-place]
	engine := h.revoke(lease.engine, atOnce)
	if !errors.Is(engine, fs.ErrNotExist) {
		h.must(engine)
	}
	if model := h.model.Revoke(h.now, lease.model, atOnce, revocation(lease.model, atOnce).Note()); model != (engine == nil) {
		return fmt.Errorf("there was such a lease: %t; says the model: %t", engine == nil, model)
	}
	return nil
}

// end deletes the semaphore.
func (h *history) end() error {
	if h.model == nil {
		return nil
	}
	h.grave = h.model.Tombstone()
	h.model = nil
	return h.store.Administer(h.ctx, h.name, fleet.Command{Delete: true})
}
