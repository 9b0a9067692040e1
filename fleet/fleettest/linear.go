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

// linearScripts check concurrent calls for linearizability. There must be an order of the
// calls, consistent with their starts and ends, in which the model gives the same replies.
// Time plays no part.
var linearScripts = []script{
	{"concurrent calls are linearizable", protocol.Config{Capacity: 3}, func(s *client) {
		for range max(1, s.suite.Histories/20) {
			s.race(8)
		}
	}},
}

// checkTimeout is the timeout of porcupine, after which a check fails. The rounds leave few orders
// to try, so that a check takes milliseconds unless there is no order.
const checkTimeout = 20 * time.Second

// A race is a set of callers that call concurrently, in rounds. They wait for each other
// between rounds, so that porcupine has to consider the orders of one round at a time.
type race struct {
	client
	start   time.Time
	racers  []*racer
	version uint64 // of the configuration, as last known

	mu    sync.Mutex
	calls []porcupine.Operation
	names map[protocol.Seq]string // labels of leases
	init  protocol.Image
}

// A racer is one session of a race.
type racer struct {
	place  protocol.Session // counted from 1; its session number in the model
	id     protocol.Session
	seq    uint64
	acked  uint64
	ticket protocol.Ticket
	held   []protocol.Seq
}

// A call is the input of one call.
type call struct {
	batch   protocol.Batch // with place as its session
	inspect bool
	config  *protocol.Config
}

// A callOutput is the output of a call.
type callOutput struct {
	reply    protocol.Reply
	snapshot protocol.Snapshot
	conflict bool
}

// label returns the label of a ticket and its lease, which identifies both.
func label(place protocol.Session, ticket protocol.Ticket) string {
	return fmt.Sprintf("%d/%d", place, ticket)
}

// race runs rounds and checks them with porcupine.
func (s *client) race(rounds int) {
	r := newRace(s)
	defer r.remove()
	for range rounds {
		r.round()
	}
	r.check()
}

func newRace(s *client) *race {
	r := &race{client: s.another(), start: time.Now(), version: 1, names: map[protocol.Seq]string{}}
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

// round makes each caller call once, and some twice: a duplicate batch is applied only once.
func (r *race) round() {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	errs := make(chan error, 2*len(r.racers)+3)
	launch := func(caller int, do func() error) {
		wg.Go(func() {
			<-begin
			if err := do(); err != nil {
				errs <- fmt.Errorf("caller %d: %w", caller, err)
			}
		})
	}
	for i, racer := range r.racers {
		b := racer.nextBatch()
		for range 1 + rand.IntN(5)/4 {
			launch(i, func() error { return r.callApply(racer, b) })
		}
	}
	launch(len(r.racers), r.callInspect)
	if rand.IntN(3) == 0 {
		for admin := range 2 { // one of the two changes conflicts
			c := r.config
			c.Capacity, c.Version = rand.Int64N(5), r.version
			launch(len(r.racers)+1+admin, func() error { return r.callConfigure(c) })
		}
	}
	close(begin)
	wg.Wait()
	close(errs)
	for err := range errs {
		r.must(err)
	}
}

// nextBatch returns the next batch of a racer.
func (w *racer) nextBatch() protocol.Batch {
	w.seq++
	b := protocol.Batch{Session: w.place, Owner: owner, Seq: w.seq, Ack: w.acked}
	w.held = slices.DeleteFunc(w.held, func(lease protocol.Seq) bool {
		releases := rand.IntN(2) == 0
		if releases {
			b.Ops = append(b.Ops, release(lease))
		}
		return releases
	})
	for range rand.IntN(3) {
		w.ticket++
		op := acquire(w.ticket, 1+rand.Int64N(3))
		op.Try, op.Pooled, op.Details = rand.IntN(5) == 0, rand.IntN(6) == 0, &protocol.Details{Holder: label(w.place, w.ticket)}
		b.Ops = append(b.Ops, op)
	}
	if rand.IntN(3) == 0 {
		b.Ops = append(b.Ops, cancel(w.ticket))
	}
	return b
}

// record records a call and its output for the check.
func (r *race) record(client int, began time.Duration, in call, out callOutput) {
	ended := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, porcupine.Operation{ClientId: client, Input: in, Call: int64(began), Output: out, Return: int64(ended)})
}

func (r *race) callApply(w *racer, b protocol.Batch) error {
	sent := b
	sent.Session = w.id
	began := time.Since(r.start)
	reply, err := r.store.Apply(r.ctx, r.name, sent)
	if err != nil {
		return err
	}
	r.record(int(w.place), began, call{batch: b}, callOutput{reply: reply})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range reply.Results {
		if f.N > w.acked && f.Kind == protocol.Granted {
			w.held = append(w.held, f.Lease)
			r.names[f.Lease] = label(w.place, f.Ticket)
		}
		w.acked = max(w.acked, f.N)
	}
	return nil
}

func (r *race) callInspect() error {
	began := time.Since(r.start)
	snapshot, err := r.store.Inspect(r.ctx, r.name)
	if err == nil {
		r.record(0, began, call{inspect: true}, callOutput{snapshot: snapshot})
	}
	return err
}

func (r *race) callConfigure(c protocol.Config) error {
	began := time.Since(r.start)
	err := r.store.Administer(r.ctx, r.name, fleet.Command{Configure: &c})
	conflict := errors.Is(err, protocol.ErrConflict)
	if err != nil && !conflict {
		return err
	}
	r.record(0, began, call{config: &c}, callOutput{conflict: conflict})
	if !conflict {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.version = c.Version + 1
	}
	return nil
}

// check checks the recorded calls with porcupine.
func (r *race) check() {
	status, info := porcupine.CheckOperationsVerbose(r.spec(), r.calls, checkTimeout)
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
	for _, o := range r.calls[:min(len(r.calls), longest+2*len(r.racers)+3)] { // to the end of the round that failed
		lines = append(lines, fmt.Sprintf("from %v to %v, %s\n\t-> %s", time.Duration(o.Call), time.Duration(o.Return), o.Input, o.Output))
	}
	r.fail("%d of %d calls are linearizable, and no more (%s):\n%s", longest, len(r.calls), status, strings.Join(lines, "\n"))
}

func (c call) String() string {
	switch {
	case c.inspect:
		return "inspect"
	case c.config != nil:
		return fmt.Sprintf("set the capacity to %d, based on version %d", c.config.Capacity, c.config.Version)
	}
	return fmt.Sprintf("session %d sends batch %d, acknowledges %d: %v", c.batch.Session, c.batch.Seq, c.batch.Ack, describe(c.batch.Ops))
}

func (a callOutput) String() string {
	switch snapshot, reply := a.snapshot, a.reply; {
	case a.conflict:
		return "conflict"
	case snapshot.Config.TTL != 0:
		return fmt.Sprintf("%d in use of %d: %+v; queued: %+v", snapshot.InUse, snapshot.Effective, snapshot.Leases, snapshot.Queue)
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
