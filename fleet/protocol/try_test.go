package protocol_test

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// poll sends empty batches every sixth of a TTL until the store can decide, and
// returns how long that took.
func (e *engine) poll(id protocol.Session, r protocol.Reply) (took protocol.Micros) {
	e.t.Helper()
	for r.Undecided > 0 {
		if took > 2*ttl {
			e.t.Fatalf("undecided for %d, longer than two TTLs", took)
		}
		pause := min(r.Undecided, ttl/6)
		e.now += pause
		took += pause
		r = e.say(id)
	}
	return took
}

func TestState_TryNeverQueues(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder, waiter, id := e.open(), e.open(), e.open()
	wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)
	if r := e.say(id, try(1, 1)); wantResults(t, r, protocol.Full) == nil || r.Undecided != 0 {
		t.Errorf("undecided for %d, though the holder is alive", r.Undecided)
	}
	e.say(waiter, acquire(1, 1))
	wantResults(t, e.say(id, try(2, 1)), protocol.Full)
	if queued := len(e.state.Snapshot().Queue); queued != 1 {
		t.Errorf("%d queued, want the one that waits", queued)
	}
}

// An hour passes without a batch. The semaphore's clock has not followed, so the
// first try cannot be decided; the reply says when the next one can.
func TestState_TryAfterASilentHourIsUndecided(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	wantResults(t, e.say(e.open(), acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	id := e.open()
	r := e.say(id, try(1, 1))
	wantResults(t, r, protocol.Full)
	if r.Undecided <= 0 || r.Undecided > ttl {
		t.Fatalf("undecided for %d, want at most a TTL", r.Undecided)
	}
	said := r.Undecided
	if took := e.poll(id, r); took > said+ttl/6 {
		t.Errorf("decided after %d, the reply said %d", took, said)
	}
	wantResults(t, e.say(id, try(2, 1)), protocol.Granted)
}

// The session that sends nothing holds nothing, so polling ends with a rejection
// that is final.
func TestState_TryBehindALiveHolderIsDecided(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	holder := e.open()
	e.open() // expires
	id := e.open()
	wantResults(t, e.say(holder, acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	e.say(holder)
	r := e.say(id, try(1, 1))
	for wantResults(t, r, protocol.Full); r.Undecided > 0; r = e.say(id) {
		e.now += min(r.Undecided, ttl/6)
		e.say(holder)
	}
	if r = e.say(id, try(2, 1)); r.Undecided != 0 {
		t.Errorf("undecided for %d, though only live sessions are left", r.Undecided)
	}
	wantResults(t, r, protocol.Full)
}

// One call ends sixteen expired sessions. For a try that needs more
// of them the reply says to ask again at once.
func TestState_TryBeyondWhatOneCallEnds(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 40})
	id := e.open()
	for range 40 {
		wantResults(t, e.say(e.open(), acquire(1, 1)), protocol.Granted)
	}
	for range 6 { // by a clock that steps back none is overdue
		e.now += ttl / 6
		e.say(id)
		e.now -= ttl / 6
		e.say(id)
	}
	e.now += ttl / 6
	ticket := protocol.Ticket(1)
	r := e.say(id, try(ticket, 30))
	for range 3 {
		if r.Results[0].Kind == protocol.Granted {
			return
		}
		if r.Undecided != 1 {
			t.Fatalf("undecided for %d, want to be asked again at once", r.Undecided)
		}
		ticket++
		r = e.say(id, try(ticket, 30))
	}
	t.Fatal("not granted, though 30 of 40 have expired")
}

// A client whose try could not be decided asks again by itself, so that the next
// try is final although the caller does nothing in between.
func TestPeer_PollsUntilATryCanBeDecided(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 1})
	wantResults(t, e.say(e.open(), acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	id, config, err := e.state.Open(e.now, tester, protocol.Version)
	if err != nil {
		t.Fatal(err)
	}
	p := protocol.NewPeer(e.now, id, config, tester)
	exchange := func() []protocol.Result {
		b := p.Send(e.now, 10)
		return p.Hear(e.now, b.Seq, e.state.Apply(e.now, b))
	}
	p.Wish(try(1, 1))
	if results := exchange(); len(results) != 1 || results[0].Kind != protocol.Full || !p.Polls(e.now) {
		t.Fatalf("%v, polls: %v", results, p.Polls(e.now))
	}
	for end := e.now + 2*ttl; p.Polls(e.now) && e.now < end; exchange() {
		if p.Speak() > e.now+ttl/6 {
			t.Fatalf("the next batch is due in %d, want at most %d", p.Speak()-e.now, ttl/6)
		}
		e.now = p.Speak()
	}
	if p.Polls(e.now) {
		t.Error("polls on, though all is decided")
	}
	p.Wish(try(2, 1))
	if results := exchange(); len(results) != 1 || results[0].Kind != protocol.Granted {
		t.Errorf("%v, want a grant", results)
	}
}
