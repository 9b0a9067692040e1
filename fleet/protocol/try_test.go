package protocol_test

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

// poll sends empty batches every sixth of a TTL until the store has decided, and returns how
// long that took.
func (e *testStore) poll(id protocol.Session, r protocol.Reply) (took protocol.Micros) {
	e.t.Helper()
	for r.Undecided > 0 {
		if took > 2*ttl {
			e.t.Fatalf("undecided for %d, longer than two TTLs", took)
		}
		pause := min(r.Undecided, ttl/6)
		e.now += pause
		took += pause
		r = e.send(id)
	}
	return took
}

func TestState_TryNeverQueues(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder, waiter, id := e.open(), e.open(), e.open()
	wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)
	if r := e.send(id, try(1, 1)); wantResults(t, r, protocol.Full) == nil || r.Undecided != 0 {
		t.Errorf("undecided for %d, although the holder is alive", r.Undecided)
	}
	e.send(waiter, acquire(1, 1))
	wantResults(t, e.send(id, try(2, 1)), protocol.Full)
	if queued := len(e.state.Snapshot().Queue); queued != 1 {
		t.Errorf("%d queued, want 1", queued)
	}
}

func TestState_TryAfterAnIdleHourIsUndecided(t *testing.T) {
	// No batch arrives for an hour. The semaphore's clock has not followed, so the first try cannot
	// be decided; the reply contains the time until the next one can.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	wantResults(t, e.send(e.open(), acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	id := e.open()
	r := e.send(id, try(1, 1))
	wantResults(t, r, protocol.Full)
	if r.Undecided <= 0 || r.Undecided > ttl {
		t.Fatalf("undecided for %d, want at most a TTL", r.Undecided)
	}
	announced := r.Undecided
	if took := e.poll(id, r); took > announced+ttl/6 {
		t.Errorf("decided after %d, the reply announced %d", took, announced)
	}
	wantResults(t, e.send(id, try(2, 1)), protocol.Granted)
}

func TestState_TryBehindALiveHolderIsDecided(t *testing.T) {
	// The session that sends nothing holds nothing, so polling ends with a final rejection.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	holder := e.open()
	e.open() // expires
	id := e.open()
	wantResults(t, e.send(holder, acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	e.send(holder)
	r := e.send(id, try(1, 1))
	for wantResults(t, r, protocol.Full); r.Undecided > 0; r = e.send(id) {
		e.now += min(r.Undecided, ttl/6)
		e.send(holder)
	}
	if r = e.send(id, try(2, 1)); r.Undecided != 0 {
		t.Errorf("undecided for %d, although only live sessions are left", r.Undecided)
	}
	wantResults(t, r, protocol.Full)
}

func TestState_TryBeyondWhatOneCallEnds(t *testing.T) {
	// One call ends sixteen expired sessions. If a try needs more of them, the reply asks for a
	// retry at once.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 40})
	id := e.open()
	for range 40 {
		wantResults(t, e.send(e.open(), acquire(1, 1)), protocol.Granted)
	}
	for range 6 { // by a clock that steps back no session is overdue
		e.now += ttl / 6
		e.send(id)
		e.now -= ttl / 6
		e.send(id)
	}
	e.now += ttl / 6
	ticket := protocol.Ticket(1)
	r := e.send(id, try(ticket, 30))
	for range 3 {
		if r.Results[0].Kind == protocol.Granted {
			return
		}
		if r.Undecided != 1 {
			t.Fatalf("undecided for %d, want 1 for a retry at once", r.Undecided)
		}
		ticket++
		r = e.send(id, try(ticket, 30))
	}
	t.Fatal("not granted, although 30 of 40 have expired")
}

func TestPeer_PollsUntilATryCanBeDecided(t *testing.T) {
	// A client whose try could not be decided polls by itself, so that the next try is final
	// although the caller does nothing in between.
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 1})
	wantResults(t, e.send(e.open(), acquire(1, 1)), protocol.Granted)
	e.now += 3600_000 * ms
	id, config, err := e.state.Open(e.now, tester, protocol.Version)
	if err != nil {
		t.Fatal(err)
	}
	p := protocol.NewPeer(e.now, id, config, tester)
	exchange := func() []protocol.Result {
		b := p.Send(e.now, 10)
		return p.Receive(e.now, b.Seq, e.state.Apply(e.now, b))
	}
	p.Request(try(1, 1))
	if results := exchange(); len(results) != 1 || results[0].Kind != protocol.Full || !p.Polls(e.now) {
		t.Fatalf("%v, polls: %v", results, p.Polls(e.now))
	}
	for end := e.now + 2*ttl; p.Polls(e.now) && e.now < end; exchange() {
		if p.NextSend() > e.now+ttl/6 {
			t.Fatalf("the next batch is due in %d, want at most %d", p.NextSend()-e.now, ttl/6)
		}
		e.now = p.NextSend()
	}
	if p.Polls(e.now) {
		t.Error("still polls, although all is decided")
	}
	p.Request(try(2, 1))
	if results := exchange(); len(results) != 1 || results[0].Kind != protocol.Granted {
		t.Errorf("%v, want a grant", results)
	}
}
