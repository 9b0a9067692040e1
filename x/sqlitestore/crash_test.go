package sqlitestore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

const (
	victims        = 6 // sessions that work at a time
	crashSites     = 2 // semaphores that they share
	crashCapacity  = 4
	longestRunning = 80 * time.Millisecond
)

// A record is a line of a victim's diary: what a session is about to say, or
// what it has heard. The diary outlives a kill: it is written line by line.
type record struct {
	Name    string
	Session protocol.Session
	Say     *protocol.Batch `json:",omitempty"`
	Heard   *protocol.Reply `json:",omitempty"`
}

type diary struct {
	mu  sync.Mutex
	out *os.File
}

func (d *diary) write(c *proctest.Child, r record) {
	line, err := json.Marshal(r)
	c.Must(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.out.Write(append(line, '\n'))
	c.Must(err)
}

// workUntilKilled is a process with several sessions that acquire, wait, cancel
// and release as fast as they can.
func workUntilKilled(c *proctest.Child) {
	out, err := os.Create(c.Args[1])
	c.Must(err)
	d := &diary{out: out}
	store, err := Open(c.Args[0], Options{Normal: c.Args[2] == "normal"})
	c.Must(err)
	for i := range victims {
		name := fmt.Sprint("site ", i%crashSites)
		id, _, err := store.Open(ctx, name, protocol.Config{Capacity: crashCapacity, TTL: sessiontest.TTL * 100, Protocol: protocol.Version}, sessiontest.Opener(fmt.Sprint("victim ", i)))
		c.Must(err)
		go func() {
			v := victim{name: name, session: id, waiting: map[protocol.Ticket]bool{}, leases: map[protocol.Seq]int64{}}
			for {
				b := v.next()
				d.write(c, record{Name: name, Session: id, Say: &b})
				r, err := store.Apply(ctx, name, b)
				c.Must(err)
				d.write(c, record{Name: name, Session: id, Heard: &r})
				v.hear(b, r)
			}
		}()
	}
	c.Say("working")
	c.Hear()
}

// A victim is what a session has, as far as it has heard.
type victim struct {
	name    string
	session protocol.Session
	seq     uint64
	ack     uint64
	ticket  protocol.Ticket
	waiting map[protocol.Ticket]bool
	leases  map[protocol.Seq]int64
	gone    []protocol.Seq  // leases that it gave back, and was heard
	flying  *protocol.Batch // said, and not answered
}

// next is a batch of some wishes.
func (v *victim) next() protocol.Batch {
	v.seq++
	b := protocol.Batch{Owner: sessiontest.Owner, Session: v.session, Seq: v.seq, Ack: v.ack}
	for range rand.IntN(4) {
		v.ticket++
		b.Ops = append(b.Ops, sessiontest.Acquire(v.ticket, 1+rand.Int64N(2)))
	}
	for ticket := range v.waiting {
		if rand.IntN(4) == 0 {
			b.Ops = append(b.Ops, protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
		}
	}
	for seq, weight := range v.leases {
		if rand.IntN(2) == 0 {
			b.Ops = append(b.Ops, protocol.Op{Verb: protocol.Release, Lease: seq, Weight: rand.Int64N(weight + 1)})
		}
	}
	return b
}

// hear notes what the answer to a batch means.
func (v *victim) hear(b protocol.Batch, r protocol.Reply) {
	for _, op := range b.Ops {
		switch op.Verb {
		case protocol.Acquire:
			v.waiting[op.Ticket] = true
		case protocol.Cancel:
			delete(v.waiting, op.Ticket)
		case protocol.Release:
			if op.Weight > 0 && op.Weight < v.leases[op.Lease] {
				v.leases[op.Lease] -= op.Weight
				break
			}
			delete(v.leases, op.Lease)
			v.gone = append(v.gone, op.Lease)
		}
	}
	for _, f := range r.Results {
		if f.N <= v.ack {
			continue
		}
		v.ack = f.N
		if f.Kind == protocol.Granted && v.waiting[f.Ticket] {
			v.leases[f.Lease] = f.Weight
		}
		delete(v.waiting, f.Ticket)
	}
}

func TestKilledAtAnyMomentNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	path, heard, midway := newFile(t), 0, 0
	for round := range *rounds {
		mode := synchronous(round%4 == 3)
		log := filepath.Join(t.TempDir(), "diary")
		p := proctest.Start(t, "victim", path, log, mode)
		p.Expect("working")
		time.Sleep(rand.N(longestRunning)) // the moment is the point
		p.End()

		store, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		witness := readDiary(t, log)
		heard += witness.heard
		midway += witness.check(t, store)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("in round %d (%s)", round, mode)
		}
	}
	t.Logf("%d batches were answered in %d rounds; %d times one was done whose answer was not heard", heard, *rounds, midway)
	if heard == 0 {
		t.Error("nothing was ever answered before the kill")
	}
}

// A witness knows what the victims knew.
type witness struct {
	victims map[protocol.Session]*victim
	heard   int
	order   map[string][]standing // of tickets, by semaphore
}

// standing is a ticket with the line of the diary before which it was in line.
type standing struct {
	session    protocol.Session
	ticket     protocol.Ticket
	said, done int // lines
}

func readDiary(t *testing.T, log string) *witness {
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{victims: map[protocol.Session]*victim{}, order: map[string][]standing{}}
	said := map[protocol.Session]int{}
	for n, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		var r record
		if len(line) == 0 || json.Unmarshal(line, &r) != nil {
			continue // the last one, half written
		}
		v := w.victims[r.Session]
		if v == nil {
			v = &victim{name: r.Name, session: r.Session, waiting: map[protocol.Ticket]bool{}, leases: map[protocol.Seq]int64{}}
			w.victims[r.Session] = v
		}
		if r.Say != nil {
			v.flying, v.seq = r.Say, r.Say.Seq
			said[r.Session] = n
			continue
		}
		for _, op := range v.flying.Ops {
			if op.Verb == protocol.Acquire {
				w.order[v.name] = append(w.order[v.name], standing{r.Session, op.Ticket, said[r.Session], n})
			}
		}
		v.hear(*v.flying, *r.Heard)
		v.flying = nil
		w.heard++
	}
	return w
}

// check compares what the victims knew with what the store has, lets each go on
// where it was, and then has them all leave. It counts the batches that had been
// done without an answer.
func (w *witness) check(t *testing.T, store *Store) (midway int) {
	for name := range w.order {
		snapshot, err := store.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		w.checkSnapshot(t, name, snapshot)
	}
	for _, v := range w.victims {
		midway += v.goOn(t, store)
	}
	for _, v := range w.victims {
		if _, err := store.Apply(ctx, v.name, protocol.Batch{Owner: sessiontest.Owner, Session: v.session, Seq: v.seq + 2, End: true}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range w.order {
		snapshot, err := store.Inspect(ctx, name)
		// Sessions that were opened and had said nothing are there still.
		if err != nil || snapshot.InUse > 0 || len(snapshot.Queue) > 0 {
			t.Errorf("when all have left: %v, %+v", err, snapshot)
		}
	}
	return midway
}

func (w *witness) checkSnapshot(t *testing.T, name string, snapshot protocol.Snapshot) {
	if snapshot.InUse > crashCapacity {
		t.Errorf("%d of %d are in use", snapshot.InUse, crashCapacity)
	}
	weights, places := map[protocol.Seq]int64{}, map[protocol.TicketName]int{}
	for _, l := range snapshot.Leases {
		weights[l.Seq] = l.Weight
	}
	for i, ticket := range snapshot.Queue {
		places[protocol.TicketName{Session: ticket.Session, Ticket: ticket.Ticket}] = i
	}
	for _, v := range w.victims {
		if v.name != name {
			continue
		}
		// What it has asked for in the batch that was not answered may be done.
		touched := map[protocol.Seq]bool{}
		if v.flying != nil {
			for _, op := range v.flying.Ops {
				touched[op.Lease] = true
			}
		}
		for seq, weight := range v.leases {
			if !touched[seq] && weights[seq] != weight {
				t.Errorf("lease %d of weight %d was acknowledged, and has %d", seq, weight, weights[seq])
			}
		}
		for _, seq := range v.gone {
			if weights[seq] > 0 {
				t.Errorf("lease %d was given back, and is out", seq)
			}
		}
	}
	w.checkOrder(t, name, places)
}

// checkOrder: who was in line before another began to ask is before it still.
func (w *witness) checkOrder(t *testing.T, name string, places map[protocol.TicketName]int) {
	var waiting []standing
	for _, s := range w.order[name] {
		if _, there := places[protocol.TicketName{Session: s.session, Ticket: s.ticket}]; there {
			waiting = append(waiting, s)
		}
	}
	for _, a := range waiting {
		for _, b := range waiting {
			if a.done < b.said && places[protocol.TicketName{Session: a.session, Ticket: a.ticket}] > places[protocol.TicketName{Session: b.session, Ticket: b.ticket}] {
				t.Errorf("%+v was before %+v, and is behind", a, b)
			}
		}
	}
}

// goOn is what a session does that lives on: it says again what was not
// answered, and then something else.
func (v *victim) goOn(t *testing.T, store *Store) (midway int) {
	say := func(b protocol.Batch) protocol.Reply {
		r, err := store.Apply(ctx, v.name, b)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if v.flying != nil {
		r := say(*v.flying)
		switch r.Status {
		case protocol.Repeated:
			midway = 1
		case protocol.Applied:
		default:
			t.Errorf("session %d, batch %d again: status %d", v.session, v.flying.Seq, r.Status)
		}
		v.hear(*v.flying, r)
	}
	b := protocol.Batch{Owner: sessiontest.Owner, Session: v.session, Seq: v.seq + 1, Ack: v.ack}
	r := say(b)
	if r.Status != protocol.Applied {
		t.Errorf("session %d, batch %d: status %d", v.session, b.Seq, r.Status)
	}
	v.hear(b, r)
	snapshot, err := store.Inspect(ctx, v.name)
	if err != nil {
		t.Fatal(err)
	}
	leases, waiting := map[protocol.Seq]int64{}, map[protocol.Ticket]bool{}
	for _, l := range snapshot.Leases {
		if l.Session == v.session {
			leases[l.Seq] = l.Weight
		}
	}
	for _, ticket := range snapshot.Queue {
		if ticket.Session == v.session {
			waiting[ticket.Ticket] = true
		}
	}
	if !maps.Equal(leases, v.leases) || !maps.Equal(waiting, v.waiting) {
		t.Errorf("session %d has leases %v and tickets %v, and knows of %v and %v", v.session, leases, slices.Collect(maps.Keys(waiting)), v.leases, slices.Collect(maps.Keys(v.waiting)))
	}
	return midway
}

// TestALogThatBreaksOffLeavesWholeBatches is about power that fails: the log may
// end anywhere. What is before is whole.
func TestALogThatBreaksOffLeavesWholeBatches(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{Normal: true})
	for i := range victims {
		s := sessiontest.Begin(t, store, fmt.Sprint("site ", i%crashSites), protocol.Config{Capacity: crashCapacity})
		v := victim{name: s.Name, session: s.ID, waiting: map[protocol.Ticket]bool{}, leases: map[protocol.Seq]int64{}}
		for range 25 {
			b := v.next()
			r, err := store.Apply(ctx, v.name, b)
			if err != nil {
				t.Fatal(err)
			}
			v.hear(b, r)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	for range 25 {
		broken := newFile(t)
		end := rand.IntN(len(log))
		if os.WriteFile(broken, file, 0o600) != nil || os.WriteFile(broken+"-wal", log[:end], 0o600) != nil {
			t.Fatal("cannot copy the file")
		}
		f, err := openFile(broken, true, nil)
		if err != nil {
			t.Fatalf("with %d bytes of the log: %v", end, err)
		}
		page, err := f.summaries("", protocol.ListQuery{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			s, err := f.load(one.Name)
			if err == nil {
				_, err = restore(one.Name, s)
			}
			if err != nil {
				t.Errorf("with %d bytes of the log: %v", end, err)
			}
		}
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
}
