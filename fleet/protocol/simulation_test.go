package protocol_test

import (
	"cmp"
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/sema-go/sema/fleet/protocol"
)

var seeds = flag.Int("sim.seeds", 40, "number of worlds that the simulation explores")

const ms protocol.Micros = 1000

// A world is a store, clients and a network that loses, delays, duplicates and reorders
// messages, in simulated time. Everything in it is determined by a seed.
type world struct {
	rng      *rand.Rand
	now      protocol.Micros // true time
	events   events
	order    int
	state    *protocol.State
	offset   protocol.Micros // of the store's clock
	clients  []*client
	capacity int64
	debt     bool // the capacity was lowered below what is in use
	live     map[protocol.Seq]bool
	ended    map[protocol.Seq]protocol.Micros // when leases ended
	calm     bool                             // no more faults and no new requests
	stored   protocol.Image                   // what the store has stored
	resource guard
	ledger   ledger
	grants   int
	rejected int
	failure  error
}

func (w *world) storeTime() protocol.Micros { return w.now + w.offset }

func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("at %d ms: "+format, append([]any{w.now / ms}, args...)...)
	}
}

// faults selects what may go wrong in a world.
type faults struct {
	loss, duplicate, delay, pause, crash, steps, resize, cancel, revoke bool

	pool, split, ramp, rate, settle bool // features rather than faults
	ticks                           bool // the store calls Tick
}

const (
	ttl     = 1500 * ms
	horizon = 60_000 * ms
)

func newWorld(seed uint64, f faults) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 1)), capacity: 3,
		live: map[protocol.Seq]bool{}, ended: map[protocol.Seq]protocol.Micros{},
	}
	config := protocol.Config{Capacity: w.capacity, TTL: ttl}
	if f.rate {
		config.Kind, config.Window = protocol.Rate, ttl
	}
	if f.ramp {
		config.Ramp = 1
	}
	state, err := protocol.New(w.storeTime(), config, 0)
	if err != nil {
		panic(err)
	}
	w.state = state
	w.state.Track()
	w.stored = w.state.Image()
	for i := range 2 + w.rng.IntN(4) {
		c := &client{world: w, faults: f, name: fmt.Sprint("client ", i)}
		w.clients = append(w.clients, c)
		w.at(w.between(0, 500*ms), c.open)
	}
	if f.steps {
		w.at(w.between(0, 5000*ms), w.step)
	}
	if f.resize {
		w.at(w.between(0, 5000*ms), w.resize)
	}
	if f.revoke {
		w.at(w.between(0, 5000*ms), w.revoke)
	}
	if f.ticks {
		w.at(w.between(0, ttl), w.tick)
	}
	return w
}

// tick ends expired sessions like a store inside a process, sometimes later than it should.
func (w *world) tick() {
	every := w.state.TickEvery()
	if w.state.Tick(w.storeTime()) {
		w.notify()
	}
	if every == 0 {
		every = ttl
	}
	w.at(w.between(every/2, 3*every), w.tick)
}

// step moves the store's clock. Steps are far enough apart that at most two fall into the two
// thirds of a TTL of a holder.
func (w *world) step() {
	if w.calm {
		return
	}
	w.offset += w.between(-2*ttl, 2*ttl)
	if w.rng.IntN(4) == 0 {
		w.offset += w.between(-3600_000*ms, 3600_000*ms)
	}
	w.at(w.between(ttl/2, 4*ttl), w.step)
}

func (w *world) resize() {
	c := w.state.Snapshot().Config
	c.Capacity = int64(w.rng.IntN(5))
	if w.calm {
		c.Capacity = 4
	}
	if _, err := w.state.Configure(w.storeTime(), c); err != nil {
		w.fail("configure: %v", err)
	}
	w.capacity = c.Capacity
	w.debt = true
	w.notify()
	w.at(w.between(0, 10*ttl), w.resize)
}

func (w *world) revoke() {
	if w.calm {
		return
	}
	if leases := w.state.Snapshot().Leases; len(leases) > 0 {
		w.state.Revoke(w.storeTime(), leases[w.rng.IntN(len(leases))].Seq, false, "")
		w.notify()
	}
	w.at(w.between(0, 5*ttl), w.revoke)
}

// run simulates until the horizon and checks after every event. Then it lets the world come to
// rest: no ticket may be left in the queue, and nothing in use.
func (w *world) run() error {
	w.until(horizon)
	w.calm = true
	w.until(horizon + 30*ttl)
	snapshot := w.state.Snapshot()
	if len(snapshot.Queue) > 0 || snapshot.InUse > 0 {
		w.fail("at the end %d are queued and %d are in use", len(snapshot.Queue), snapshot.InUse)
	}
	for _, c := range w.clients {
		if len(c.requested) > 0 {
			w.fail("%s still waits for a result", c.name)
		}
	}
	return w.failure
}

func (w *world) until(end protocol.Micros) {
	for w.failure == nil && len(w.events) > 0 && w.events[0].at < end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		w.check()
	}
}

func (w *world) check() {
	if err := w.state.Check(); err != nil {
		w.fail("%v", err)
	}
	if w.state.Vital() || w.rng.IntN(10) == 0 {
		applyChanges(&w.stored, w.state.Changes())
		if image := w.state.Image(); !reflect.DeepEqual(w.stored, image) {
			w.fail("stored %+v, want %+v", w.stored, image)
		}
	}
	w.noteEnded()
	held := int64(0)
	for _, c := range w.clients {
		held += c.holding()
	}
	inUse := w.state.Snapshot().InUse
	w.debt = w.debt && inUse > w.capacity
	if held > w.capacity && !w.debt {
		w.fail("%d permits of %d are held", held, w.capacity)
	}
	if held > inUse {
		w.fail("clients hold %d, the store has %d in use: a live lease has ended", held, inUse)
	}
}

// noteEnded records when leases end.
func (w *world) noteEnded() {
	now := map[protocol.Seq]bool{}
	for _, l := range w.state.Snapshot().Leases {
		now[l.Seq] = true
	}
	for seq := range w.live {
		if !now[seq] {
			w.ended[seq] = w.now
		}
	}
	w.live = now
}

// deliver applies a batch and sends the reply.
func (w *world) deliver(c *client, epoch int, b protocol.Batch) {
	if w.rng.IntN(40) == 0 {
		w.reload()
	}
	before, spent := w.state.Snapshot(), w.spent()
	reply := w.state.Apply(w.storeTime(), b)
	w.ledger.apply(w, b, reply, spent, w.spent())
	w.checkOrder(before)
	w.notify()
	repliedAt := w.now
	c.network(func() { c.receive(epoch, b.Seq, reply, repliedAt) })
}

// spent returns the costs in the window, if the semaphore is a rate.
func (w *world) spent() []protocol.SpentImage {
	if w.stored.Config.Kind != protocol.Rate {
		return nil
	}
	return w.state.Image().Spent
}

// reload restarts the store from what it has stored.
func (w *world) reload() {
	restored, err := protocol.Restore(w.stored)
	if err != nil {
		w.fail("restore: %v", err)
		return
	}
	if again := restored.Image(); !reflect.DeepEqual(again, w.stored) {
		w.fail("restored %+v, want %+v", again, w.stored)
	}
	w.state = restored
	w.state.Track()
	w.state.Extend()
}

// applyChanges applies changes to an image, as a store does with its tables.
func applyChanges(im *protocol.Image, c protocol.Changes) {
	sessions, leases, queue, spent := im.Sessions, im.Leases, im.Queue, im.Spent
	*im = c.Image
	for _, id := range c.Ended {
		sessions = slices.DeleteFunc(sessions, func(s protocol.SessionImage) bool { return s.ID == id })
	}
	for _, changed := range c.Sessions {
		sessions = slices.DeleteFunc(sessions, func(s protocol.SessionImage) bool { return s.ID == changed.ID })
	}
	sessions = append(sessions, c.Sessions...)
	slices.SortFunc(sessions, func(a, b protocol.SessionImage) int { return cmp.Compare(a.Renewal, b.Renewal) })
	for _, seq := range c.Dropped {
		leases = slices.DeleteFunc(leases, func(l protocol.LeaseImage) bool { return l.Seq == seq })
	}
	for _, changed := range c.Leases {
		leases = slices.DeleteFunc(leases, func(l protocol.LeaseImage) bool { return l.Seq == changed.Seq })
	}
	leases = append(leases, c.Leases...)
	slices.SortFunc(leases, func(a, b protocol.LeaseImage) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, name := range c.Left {
		queue = slices.DeleteFunc(queue, func(t protocol.TicketImage) bool { return t.Session == name.Session && t.Ticket == name.Ticket })
	}
	queue = append(queue, c.Queue...)
	if c.Respent {
		spent = c.Spent
	}
	im.Sessions, im.Leases, im.Queue, im.Spent = nilIfEmpty(sessions), nilIfEmpty(leases), nilIfEmpty(queue), nilIfEmpty(spent)
}

func nilIfEmpty[E any](list []E) []E {
	if len(list) == 0 {
		return nil
	}
	return list
}

// checkOrder fails if a queued ticket was overtaken: tickets granted since must have been queued
// before all that are still queued. Tickets and leases are identified by their details.
func (w *world) checkOrder(before protocol.Snapshot) {
	after := w.state.Snapshot()
	queued, granted := map[string]bool{}, map[string]bool{}
	for _, t := range after.Queue {
		queued[t.Details.Holder] = true
	}
	for _, l := range after.Leases {
		granted[l.Details.Holder] = true
	}
	for _, l := range before.Leases {
		delete(granted, l.Details.Holder)
	}
	waiting := ""
	for _, t := range before.Queue {
		switch {
		case queued[t.Details.Holder]:
			waiting = t.Details.Holder
		case waiting != "" && granted[t.Details.Holder]:
			w.fail("%s was granted before %s", t.Details.Holder, waiting)
		}
	}
}

// notify notifies the woken sessions, unless the network loses the message.
func (w *world) notify() {
	for _, id := range w.state.Woken() {
		for _, c := range w.clients {
			if c.session == id {
				epoch := c.epoch
				c.network(func() { c.notified(epoch) })
			}
		}
	}
}

func (w *world) between(from, to protocol.Micros) protocol.Micros {
	return from + protocol.Micros(w.rng.Int64N(int64(to-from)+1))
}

func (w *world) at(in protocol.Micros, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + in, w.order, do})
}

type event struct {
	at    protocol.Micros
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
