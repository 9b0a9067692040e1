package fleettest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// linearScripts are about callers at the same time: there is an order of their
// calls, in keeping with when each began and ended, in which the model gives the
// same answers. Time has no part in it.
var linearScripts = []script{
	{"concurrent calls are as if one after the other", protocol.Config{Capacity: 3}, func(s *speaker) {
		for range max(1, s.suite.Histories/20) {
			s.race(8)
		}
	}},
}

// decision is how long porcupine may take. One that takes longer is a failure:
// the rounds leave it few orders to try, so that it takes milliseconds, unless
// there is none.
const decision = 20 * time.Second

// A race is callers that all call at the same time, again and again. They wait
// for each other in between: what is concurrent is what matters, and porcupine
// has to look at one round's orders at a time.
type race struct {
	speaker
	start   time.Time
	racers  []*racer
	version uint64 // of the configuration, as last known

	mu    sync.Mutex
	calls []porcupine.Operation
	names map[protocol.Seq]string // what leases are for
	init  protocol.Image
}

// A racer is a session.
type racer struct {
	place  protocol.Session // counted from 1, which is its number in the model
	id     protocol.Session
	seq    uint64
	heard  uint64
	ticket protocol.Ticket
	held   []protocol.Seq
}

// A call is what a racer says, or somebody else.
type call struct {
	batch  protocol.Batch // of which the session is by its place
	look   bool
	config *protocol.Config
}

// An answer is what is said to it.
type answer struct {
	reply    protocol.Reply
	snapshot protocol.Snapshot
	conflict bool
}

// purpose is what a lease or a ticket has for its meta, by which it is known.
func purpose(place protocol.Session, ticket protocol.Ticket) string {
	return fmt.Sprintf("%d/%d", place, ticket)
}

// race is so many rounds, and what porcupine thinks of them.
func (s *speaker) race(rounds int) {
	r := newRace(s)
	defer r.remove()
	for range rounds {
		r.round()
	}
	r.judge()
}

func newRace(s *speaker) *race {
	r := &race{speaker: s.another(), start: time.Now(), version: 1, names: map[protocol.Seq]string{}}
	model, err := protocol.New(0, r.config, 0)
	r.must(err)
	for range 5 {
		place, _, err := model.Open(0, opener("fleettest"), protocol.Version)
		r.must(err)
		r.racers = append(r.racers, &racer{place: place, id: r.open()})
	}
	r.init = model.Image()
	return r
}

// round has everybody call once, and some twice: what is doubled on its way is
// no more than once.
func (r *race) round() {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	errs := make(chan error, 2*len(r.racers)+3)
	launch := func(who int, do func() error) {
		wg.Go(func() {
			<-begin
			if err := do(); err != nil {
				errs <- fmt.Errorf("caller %d: %w", who, err)
			}
		})
	}
	for i, racer := range r.racers {
		b := racer.wish()
		for range 1 + rand.IntN(5)/4 {
			launch(i, func() error { return r.say(racer, b) })
		}
	}
	launch(len(r.racers), r.look)
	if rand.IntN(3) == 0 {
		for admin := range 2 { // of whom one is too late
			c := r.config
			c.Capacity, c.Version = rand.Int64N(5), r.version
			launch(len(r.racers)+1+admin, func() error { return r.change(c) })
		}
	}
	close(begin)
	wg.Wait()
	close(errs)
	for err := range errs {
		r.must(err)
	}
}

// wish is the next batch of a racer.
func (w *racer) wish() protocol.Batch {
	w.seq++
	b := protocol.Batch{Session: w.place, Owner: owner, Seq: w.seq, Ack: w.heard}
	w.held = slices.DeleteFunc(w.held, func(lease protocol.Seq) bool {
		give := rand.IntN(2) == 0
		if give {
			b.Ops = append(b.Ops, release(lease))
		}
		return give
	})
	for range rand.IntN(3) {
		w.ticket++
		op := acquire(w.ticket, 1+rand.Int64N(3))
		op.Try, op.Pooled, op.Details.Holder = rand.IntN(5) == 0, rand.IntN(6) == 0, purpose(w.place, w.ticket)
		b.Ops = append(b.Ops, op)
	}
	if rand.IntN(3) == 0 {
		b.Ops = append(b.Ops, cancel(w.ticket))
	}
	return b
}

// note keeps a call and its answer for the judgement.
func (r *race) note(client int, began time.Duration, in call, out answer) {
	ended := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, porcupine.Operation{ClientId: client, Input: in, Call: int64(began), Output: out, Return: int64(ended)})
}

func (r *race) say(w *racer, b protocol.Batch) error {
	said := b
	said.Session = w.id
	began := time.Since(r.start)
	reply, err := r.store.Apply(r.ctx, r.name, said)
	if err != nil {
		return err
	}
	r.note(int(w.place), began, call{batch: b}, answer{reply: reply})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range reply.Results {
		if f.N > w.heard && f.Kind == protocol.Granted {
			w.held = append(w.held, f.Lease)
			r.names[f.Lease] = purpose(w.place, f.Ticket)
		}
		w.heard = max(w.heard, f.N)
	}
	return nil
}

func (r *race) look() error {
	began := time.Since(r.start)
	snapshot, err := r.store.Inspect(r.ctx, r.name)
	if err == nil {
		r.note(0, began, call{look: true}, answer{snapshot: snapshot})
	}
	return err
}

func (r *race) change(c protocol.Config) error {
	began := time.Since(r.start)
	err := r.store.Administer(r.ctx, r.name, fleet.Command{Configure: &c})
	conflict := errors.Is(err, protocol.ErrConflict)
	if err != nil && !conflict {
		return err
	}
	r.note(0, began, call{config: &c}, answer{conflict: conflict})
	if !conflict {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.version = c.Version + 1
	}
	return nil
}

// judge has porcupine look for the order.
func (r *race) judge() {
	status, info := porcupine.CheckOperationsVerbose(r.spec(), r.calls, decision)
	if status == porcupine.Ok {
		return
	}
	longest := 0
	for _, some := range info.PartialLinearizations() {
		for _, order := range some {
			longest = max(longest, len(order))
		}
	}
	slices.SortFunc(r.calls, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, o := range r.calls[:min(len(r.calls), longest+2*len(r.racers)+3)] { // to the end of the round, and what led to it
		lines = append(lines, fmt.Sprintf("from %v to %v, %s\n\t-> %s", time.Duration(o.Call), time.Duration(o.Return), o.Input, o.Output))
	}
	r.fail("%d of %d calls could be put in an order, and no more (%s):\n%s", longest, len(r.calls), status, strings.Join(lines, "\n"))
}

func (c call) String() string {
	switch {
	case c.look:
		return "somebody looks"
	case c.config != nil:
		return fmt.Sprintf("somebody sets the capacity to %d, by version %d", c.config.Capacity, c.config.Version)
	}
	return fmt.Sprintf("session %d says batch %d, has heard %d: %v", c.batch.Session, c.batch.Seq, c.batch.Ack, describe(c.batch.Ops))
}

func (a answer) String() string {
	switch snapshot, reply := a.snapshot, a.reply; {
	case a.conflict:
		return "conflict"
	case snapshot.Config.TTL != 0:
		return fmt.Sprintf("%d in use of %d: %+v; in line: %+v", snapshot.InUse, snapshot.Effective, snapshot.Leases, snapshot.Queue)
	case reply.Config.TTL == 0:
		return "done"
	default:
		return fmt.Sprintf("status %d, results %+v, %d in use of %d, %d wanted, recall: %t",
			reply.Status, reply.Results, reply.InUse, reply.Config.Capacity, reply.Wanted, reply.Recall)
	}
}

func describe(ops []protocol.Op) (lines []string) {
	for _, op := range ops {
		switch op.Verb {
		case protocol.Acquire:
			lines = append(lines, fmt.Sprintf("acquire %d as %q, try: %t, pooled: %t", op.Weight, op.Details.Holder, op.Try, op.Pooled))
		case protocol.Release:
			lines = append(lines, fmt.Sprintf("release %d", op.Lease))
		default:
			lines = append(lines, fmt.Sprintf("cancel ticket %d", op.Ticket))
		}
	}
	return lines
}
