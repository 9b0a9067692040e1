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
	victims       = 6 // sessions that work concurrently
	crashSites    = 2 // semaphores that the sessions share
	crashCapacity = 4
	maxRunning    = 80 * time.Millisecond
)

// A record is a line of a victim's journal: a batch that a session is about to send, or
// the reply that it received. The journal survives a kill: it is written line by line.
type record struct {
	Name     string
	Session  protocol.Session
	Sent     *protocol.Batch `json:",omitempty"`
	Received *protocol.Reply `json:",omitempty"`
}

type journal struct {
	mu  sync.Mutex
	out *os.File
}

func (d *journal) write(c *proctest.Child, r record) {
	line, err := json.Marshal(r)
	c.Must(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.out.Write(append(line, '\n'))
	c.Must(err)
}

// workUntilKilled runs several sessions that acquire, wait, cancel and release as fast
// as they can.
func workUntilKilled(c *proctest.Child) {
	out, err := os.Create(c.Args[1])
	c.Must(err)
	d := &journal{out: out}
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
				d.write(c, record{Name: name, Session: id, Sent: &b})
				r, err := store.Apply(ctx, name, b)
				c.Must(err)
				d.write(c, record{Name: name, Session: id, Received: &r})
				v.receive(b, r)
			}
		}()
	}
	c.Send("working")
	c.Receive()
}

// A victim is the state of a session according to the replies that it received.
type victim struct {
	name     string
	session  protocol.Session
	seq      uint64
	ack      uint64
	ticket   protocol.Ticket
	waiting  map[protocol.Ticket]bool
	leases   map[protocol.Seq]int64
	released []protocol.Seq  // leases whose release was acknowledged
	pending  *protocol.Batch // sent, and not acknowledged
}

// next returns a batch of random operations.
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

// receive updates the state from the reply to a batch.
func (v *victim) receive(b protocol.Batch, r protocol.Reply) {
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
			v.released = append(v.released, op.Lease)
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

func TestStore_KilledAtAnyMomentNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	path, received, midway := newFile(t), 0, 0
	for round := range *rounds {
		mode := synchronous(round%4 == 3)
		log := filepath.Join(t.TempDir(), "diary")
		p := proctest.Start(t, "victim", path, log, mode)
		p.Expect("working")
		time.Sleep(rand.N(maxRunning)) // the kill comes at a random moment
		p.End()

		store, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		observer := readJournal(t, log)
		received += observer.received
		midway += observer.check(t, store)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("in round %d (%s)", round, mode)
		}
	}
	t.Logf("%d batches were acknowledged in %d rounds; %d batches were applied whose reply was not received", received, *rounds, midway)
	if received == 0 {
		t.Error("no batch was ever acknowledged before the kill")
	}
}

// An observer contains the states of the victims, read from their journal.
type observer struct {
	victims  map[protocol.Session]*victim
	received int
	order    map[string][]queuedTicket // tickets by semaphore
}

// A queuedTicket is a ticket with the lines of the journal at which it was sent and
// acknowledged.
type queuedTicket struct {
	session    protocol.Session
	ticket     protocol.Ticket
	sent, done int // lines
}

func readJournal(t *testing.T, log string) *observer {
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	w := &observer{victims: map[protocol.Session]*victim{}, order: map[string][]queuedTicket{}}
	sent := map[protocol.Session]int{}
	for n, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		var r record
		if len(line) == 0 || json.Unmarshal(line, &r) != nil {
			continue // the last line, half written
		}
		v := w.victims[r.Session]
		if v == nil {
			v = &victim{name: r.Name, session: r.Session, waiting: map[protocol.Ticket]bool{}, leases: map[protocol.Seq]int64{}}
			w.victims[r.Session] = v
		}
		if r.Sent != nil {
			v.pending, v.seq = r.Sent, r.Sent.Seq
			sent[r.Session] = n
			continue
		}
		for _, op := range v.pending.Ops {
			if op.Verb == protocol.Acquire {
				w.order[v.name] = append(w.order[v.name], queuedTicket{r.Session, op.Ticket, sent[r.Session], n})
			}
		}
		v.receive(*v.pending, *r.Received)
		v.pending = nil
		w.received++
	}
	return w
}

// check compares the states of the victims with the store, resumes each session where it
// was, and then ends all sessions. It returns the number of batches that were applied
// without a reply.
func (w *observer) check(t *testing.T, store *Store) (midway int) {
	for name := range w.order {
		snapshot, err := store.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		w.checkSnapshot(t, name, snapshot)
	}
	for _, v := range w.victims {
		midway += v.resume(t, store)
	}
	for _, v := range w.victims {
		if _, err := store.Apply(ctx, v.name, protocol.Batch{Owner: sessiontest.Owner, Session: v.session, Seq: v.seq + 2, End: true}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range w.order {
		snapshot, err := store.Inspect(ctx, name)
		// Sessions that were opened and sent nothing still exist.
		if err != nil || snapshot.InUse > 0 || len(snapshot.Queue) > 0 {
			t.Errorf("after all sessions ended: %v, %+v", err, snapshot)
		}
	}
	return midway
}

func (w *observer) checkSnapshot(t *testing.T, name string, snapshot protocol.Snapshot) {
	if snapshot.InUse > crashCapacity {
		t.Errorf("%d of %d permits are in use", snapshot.InUse, crashCapacity)
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
		// The batch that was not acknowledged may have been applied.
		touched := map[protocol.Seq]bool{}
		if v.pending != nil {
			for _, op := range v.pending.Ops {
				touched[op.Lease] = true
			}
		}
		for seq, weight := range v.leases {
			if !touched[seq] && weights[seq] != weight {
				t.Errorf("lease %d was acknowledged with weight %d, and has weight %d", seq, weight, weights[seq])
			}
		}
		for _, seq := range v.released {
			if weights[seq] > 0 {
				t.Errorf("lease %d was released, and is held", seq)
			}
		}
	}
	w.checkOrder(t, name, places)
}

// checkOrder checks that a ticket queued before another one was sent is still before it.
func (w *observer) checkOrder(t *testing.T, name string, places map[protocol.TicketName]int) {
	var waiting []queuedTicket
	for _, s := range w.order[name] {
		if _, there := places[protocol.TicketName{Session: s.session, Ticket: s.ticket}]; there {
			waiting = append(waiting, s)
		}
	}
	for _, a := range waiting {
		for _, b := range waiting {
			if a.done < b.sent && places[protocol.TicketName{Session: a.session, Ticket: a.ticket}] > places[protocol.TicketName{Session: b.session, Ticket: b.ticket}] {
				t.Errorf("%+v was queued before %+v, and is behind it now", a, b)
			}
		}
	}
}

// resume continues a session: it sends the unacknowledged batch again, and then another
// one. It returns 1 if the unacknowledged batch had been applied.
func (v *victim) resume(t *testing.T, store *Store) (midway int) {
	send := func(b protocol.Batch) protocol.Reply {
		r, err := store.Apply(ctx, v.name, b)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if v.pending != nil {
		r := send(*v.pending)
		switch r.Status {
		case protocol.Repeated:
			midway = 1
		case protocol.Applied:
		default:
			t.Errorf("session %d, batch %d again: status %d", v.session, v.pending.Seq, r.Status)
		}
		v.receive(*v.pending, r)
	}
	b := protocol.Batch{Owner: sessiontest.Owner, Session: v.session, Seq: v.seq + 1, Ack: v.ack}
	r := send(b)
	if r.Status != protocol.Applied {
		t.Errorf("session %d, batch %d: status %d", v.session, b.Seq, r.Status)
	}
	v.receive(b, r)
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
		t.Errorf("session %d has leases %v and tickets %v, want %v and %v", v.session, leases, slices.Collect(maps.Keys(waiting)), v.leases, slices.Collect(maps.Keys(v.waiting)))
	}
	return midway
}

// TestStore_TruncatedLogLeavesWholeBatches truncates the log at random positions, as a
// power failure may. The batches before that position must be complete.
func TestStore_TruncatedLogLeavesWholeBatches(t *testing.T) {
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
			v.receive(b, r)
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
