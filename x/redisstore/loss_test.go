package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A member is a client with its own session and key. It reports the highest Seq it has
// received.
type member struct {
	t     *testing.T
	store *Store
	peer  *protocol.Peer
	id    protocol.Session
}

var memberConfig = protocol.Config{Capacity: 2, TTL: shortTTL, Protocol: protocol.Version}

func join(t *testing.T, store *Store) *member {
	t.Helper()
	by := protocol.Opener{Client: protocol.Client{Instance: t.Name()}, Owner: protocol.Owner{Key: protocol.NewKey()}}
	id, config, err := store.Open(ctx, "db", memberConfig, by)
	if err != nil {
		t.Fatal(err)
	}
	return &member{t, store, protocol.NewPeer(0, id, config, by), id}
}

// send sends the next batch. The peer's clock stands still, so only the store decides what
// has expired.
func (m *member) send(ops ...protocol.Op) (protocol.Reply, []protocol.Result) {
	m.t.Helper()
	for _, op := range ops {
		m.peer.Request(op)
	}
	b := m.peer.Send(0, 10)
	r, err := m.store.Apply(ctx, "db", b)
	if err != nil {
		m.t.Fatal(err)
	}
	return r, m.peer.Receive(0, b.Seq, r)
}

// hold acquires weight and waits until it is granted.
func (m *member) hold(weight int64) protocol.Fence {
	m.t.Helper()
	_, results := m.send(sessiontest.Acquire(1, weight))
	for began := time.Now(); len(results) == 0; _, results = m.send() {
		if time.Since(began) > 20*time.Second {
			m.t.Fatal("nothing was granted within 20s")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if results[0].Kind != protocol.Granted {
		m.t.Fatalf("%+v, want a grant", results[0])
	}
	return results[0].Fence
}

// reconnect waits until the member reaches the server again, without a request to the
// semaphore.
func (m *member) reconnect() {
	m.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := m.store.Ping(ctx); err == nil {
			return
		} else if time.Since(began) > 20*time.Second {
			m.t.Fatal(err)
		}
	}
}

// wantLost fails unless the member's session is unknown.
func (m *member) wantLost() {
	m.t.Helper()
	m.reconnect()
	if r, _ := m.send(); r.Status != protocol.Unknown {
		m.t.Errorf("status %d for session %d, want Unknown", r.Status, m.id)
	}
}

// wantHandover fails unless a guard admits both fences, and rejects the earlier one after
// the later one.
func wantHandover(t *testing.T, earlier, later protocol.Fence) {
	t.Helper()
	var guard fleet.Guard
	if guard.Admit(earlier) != nil || guard.Admit(later) != nil {
		t.Errorf("the guard rejects a holder: %+v, then %+v", earlier, later)
	}
	if guard.Admit(earlier) == nil {
		t.Errorf("the guard admits %+v, which was lost, after %+v", earlier, later)
	}
}

// TestStore_SnapshotThatIsRestoredTwice starts a server twice from a snapshot whose
// numbers are already ahead of the clock.
func TestStore_SnapshotThatIsRestoredTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	join(t, openServer(t, server))
	server.Must("SAVE")
	server.Restart()
	join(t, openServer(t, server)) // numbers leap ahead of the clock
	server.Must("SAVE")
	server.Restart()
	a := join(t, openServer(t, server))
	first := a.hold(2)
	server.Restart()
	b := join(t, openServer(t, server))
	if b.id == a.id {
		t.Errorf("session %d was opened twice", b.id)
	}
	a.wantLost()
	wantHandover(t, first, b.hold(2))
	a.wantLost()
}

// TestStore_SnapshotThatIsRestoredTwiceAfterTheClockSteppedBack steps the server's clock
// back, so that the server cannot know which numbers it has assigned. The keys of
// sessions distinguish them, and Seqs start after those that a client reports.
func TestStore_SnapshotThatIsRestoredTwiceAfterTheClockSteppedBack(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(t)
	server := redistest.Start(clock.For(t))
	join(t, openServer(t, server))
	server.Must("SAVE")
	clock.Set(-3 * time.Hour)
	server.Restart()
	a := join(t, openServer(t, server))
	first := a.hold(2)
	server.Restart()
	b := join(t, openServer(t, server))
	if b.id != a.id {
		t.Errorf("sessions %d and %d, want the same number for this test", a.id, b.id)
	}
	a.wantLost()
	wantHandover(t, first, b.hold(2))
	a.wantLost()
}

// TestStore_MissingSemaphoreStartsAfterWhatAClientReports loses all data of the semaphore
// and steps the clock back.
func TestStore_MissingSemaphoreStartsAfterWhatAClientReports(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(t)
	server := redistest.Start(clock.For(t))
	a := join(t, openServer(t, server))
	first := a.hold(2)
	clock.Set(-3 * time.Hour)
	server.Restart()
	a.wantLost()
	wantHandover(t, first, join(t, openServer(t, server)).hold(2))
}

// TestStore_NumbersOfAnEmptyServerLeapOnce restarts a server without persistence. A new
// client connects before one that used the server before.
func TestStore_NumbersOfAnEmptyServerLeapOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	old := openServer(t, server)
	join(t, old)
	server.Restart()
	join(t, openServer(t, server))
	returned := &member{t: t, store: old}
	returned.reconnect()
	second := join(t, old).hold(2)
	server.Restart()
	wantHandover(t, second, join(t, openServer(t, server)).hold(2))
}

// TestStore_EmptyServerGrantsNothingForAWholeTTL checks that an empty server grants
// nothing for a whole TTL after its start. uptime_in_seconds is up to a second more than
// the time since the start.
func TestStore_EmptyServerGrantsNothingForAWholeTTL(t *testing.T) {
	t.Parallel()
	server := redistest.StartNew(t)
	for range 5 {
		server.Kill()
		now := time.Now()
		time.Sleep(now.Truncate(time.Second).Add(1700 * time.Millisecond).Sub(now)) // start shortly before the end of a second
		began := time.Now()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		server.Await("uptime_in_seconds:1", "INFO", "server") // for less than a second, unless this machine is busy
		join(t, openServer(t, server)).hold(2)
		if took := time.Since(began); took < time.Duration(shortTTL)*time.Microsecond {
			t.Errorf("granted %v after the start, with a TTL of %d µs", took, shortTTL)
		}
	}
}

// losses are ways to lose all data while the server runs.
var losses = []struct {
	name string
	lose func(*redistest.Server)
}{
	{"FLUSHALL", func(s *redistest.Server) { s.Must("FLUSHALL") }},
	{"FLUSHDB", func(s *redistest.Server) { s.Must("FLUSHDB") }},
	{"SWAPDB", func(s *redistest.Server) { s.Must("SWAPDB", "0", "1") }},
	{"FLUSHALL, and statistics are reset", func(s *redistest.Server) { s.Must("FLUSHALL"); s.Must("CONFIG", "RESETSTAT") }},
	{"keys are deleted by a pattern", func(s *redistest.Server) { s.Must(append([]string{"DEL"}, strings.Fields(s.Must("KEYS", "*"))...)...) }},
}

// TestStore_ServerThatLosesItsDataWhileItRuns loses the data of a running server. The
// first client after the loss is new and does not know the holders.
func TestStore_ServerThatLosesItsDataWhileItRuns(t *testing.T) {
	t.Parallel()
	for form, settings := range map[string][]string{"functions": nil, "script": {"--rename-command", "FUNCTION", ""}} {
		for _, loss := range losses {
			t.Run(loss.name+", "+form, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, settings...)
				a := join(t, openServer(t, server))
				first := a.hold(2)
				began := time.Now()
				loss.lose(server)
				second := join(t, openServer(t, server)).hold(2)
				if took := time.Since(began); took < time.Duration(shortTTL)*time.Microsecond {
					t.Errorf("granted %v after the data were lost, with a TTL of %d µs", took, shortTTL)
				}
				a.wantLost()
				wantHandover(t, first, second)
			})
		}
	}
}

// TestStore_NewPrefixGrantsAtOnce checks that a new prefix on a server that has lost
// nothing grants at once, though other prefixes are in use.
func TestStore_NewPrefixGrantsAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sessiontest.Begin(t, openServer(t, server), "db", memberConfig).Granted(1, sessiontest.Acquire(1, 1))
	for _, o := range []Options{{Prefix: "other:"}, {DB: 1, Prefix: "third:"}} {
		o.Addresses = []string{server.Address}
		sessiontest.Begin(t, openAt(t, o), "db", memberConfig).Granted(1, sessiontest.Acquire(1, 1))
	}
	sessiontest.Begin(t, openServer(t, server), "new", memberConfig).Granted(1, sessiontest.Acquire(1, 1))
}

// TestStore_PrimaryThatMissedAWholeTerm makes the same process a primary, a replica and a
// primary again. It has received none of the writes that the other primary has made
// meanwhile.
func TestStore_PrimaryThatMissedAWholeTerm(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	join(t, p.open(t))
	p.catchUp()
	p.replica.Promote()
	p.primary.Must("REPLICAOF", "127.0.0.1", p.replica.Address[len("127.0.0.1:"):])
	p.primary.Await("master_link_status:up", "INFO", "replication")
	p.primary.CatchUp(p.replica)
	p.primary.Must("REPLICAOF", "127.0.0.1", "1")
	p.proxy.Retarget(p.replica.Address)
	p.proxy.Cut()
	a := join(t, p.open(t))
	first := a.hold(2)
	p.replica.Kill()
	p.primary.Promote()
	p.proxy.Retarget(p.primary.Address)
	p.proxy.Cut()
	began := time.Now()
	second := join(t, p.open(t)).hold(2)
	if took := time.Since(began); took < quarantine {
		t.Errorf("granted %v after the promotion, want %v", took, quarantine)
	}
	a.wantLost()
	wantHandover(t, first, second)
}

// TestStore_TryOnANewServer checks that a try on a server that has just started returns
// Undecided at once. After the time in the reply, a try is decided.
func TestStore_TryOnANewServer(t *testing.T) {
	t.Parallel()
	server := redistest.StartNew(t)
	s := sessiontest.Begin(t, openServer(t, server), "db", memberConfig)
	try := func(ticket protocol.Ticket, weight int64) protocol.Op {
		return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Try: true}
	}
	r := s.Send(try(1, 1), try(2, 2), try(3, 3))
	var kinds []protocol.ResultKind
	for _, f := range r.Results {
		kinds = append(kinds, f.Kind)
	}
	if len(kinds) != 3 || kinds[0] != protocol.Undecided || kinds[1] != protocol.Undecided || kinds[2] != protocol.TooLarge {
		t.Fatalf("results %v, want Undecided, Undecided and TooLarge", kinds)
	}
	if r.Undecided <= 0 || r.Undecided > shortTTL {
		t.Errorf("undecided for %d µs, want at most a TTL", r.Undecided)
	}
	if _, queue := sessiontest.Held(t, s.Store, "db"); len(queue) > 0 {
		t.Errorf("tickets %v are queued", queue)
	}
	for polls := 0; r.Undecided > 0; polls++ {
		if polls > 24 {
			t.Fatalf("undecided for %d µs after %d polls", r.Undecided, polls)
		}
		time.Sleep(time.Duration(min(r.Undecided, shortTTL/6)) * time.Microsecond)
		r = s.Send()
	}
	s.Granted(1, try(4, 2))
}
