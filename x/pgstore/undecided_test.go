package pgstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// A timeline applies the same operations to a store and to the model, at times that are
// seconds after its beginning, and fails the test if the replies differ. The TTL is 15 s.
type timeline struct {
	*comparison
	t      *testing.T
	begin  time.Time
	config protocol.Config
}

func newTimeline(t *testing.T, sessions int) *timeline {
	t.Helper()
	l := &comparison{store: openClocked(t).(clocked), name: "a", now: time.Now().Truncate(time.Microsecond)}
	l.store.SetClock(l.now)
	tl := &timeline{l, t, l.now, protocol.Config{Capacity: 1, TTL: sessiontest.TTL, Protocol: protocol.Version}}
	var err error
	if l.model, err = protocol.New(l.micros(), tl.config, 0); err != nil {
		t.Fatal(err)
	}
	for range sessions {
		tl.open()
	}
	return tl
}

func (tl *timeline) must(err error) {
	tl.t.Helper()
	if err != nil {
		tl.t.Fatal(err)
	}
}

func (tl *timeline) open() {
	tl.t.Helper()
	tl.must(tl.comparison.open(tl.config))
}

func (tl *timeline) at(second float64) {
	tl.now = tl.begin.Add(time.Duration(second * float64(time.Second)))
	tl.store.SetClock(tl.now)
}

func (tl *timeline) compareState() {
	tl.t.Helper()
	tl.must(tl.comparison.compareState())
}

// apply sends a batch for one of the sessions and returns Undecided of its reply.
func (tl *timeline) apply(session int, end bool) protocol.Micros {
	tl.t.Helper()
	m := tl.members[session]
	m.seq++
	b := protocol.Batch{Owner: m.owner, Session: m.id, Seq: m.seq, Ack: m.ack, End: end}
	tl.must(tl.comparison.apply(m, b))
	return tl.model.Apply(tl.micros(), b).Undecided // a repeated batch, which changes nothing
}

func (tl *timeline) wantUndecided(session int, undecided bool) {
	tl.t.Helper()
	if got := tl.apply(session, false); got > 0 != undecided {
		tl.t.Fatalf("undecided for %d, want undecided %t", got, undecided)
	}
}

func TestStore_UndecidedMatchesTheModel(t *testing.T) {
	t.Parallel()
	t.Run("a session was seen before a step back", func(t *testing.T) {
		t.Parallel()
		tl := newTimeline(t, 3)
		tl.at(1) // so that it is known when the oldest was seen
		tl.wantUndecided(0, false)
		tl.at(-10)
		tl.wantUndecided(1, false)
		tl.wantUndecided(2, false)
		tl.wantUndecided(0, false)
		tl.at(6) // 16 s after the second one was seen
		tl.wantUndecided(0, true)
	})
	t.Run("the one that was renewed first was seen last", func(t *testing.T) {
		t.Parallel()
		tl := newTimeline(t, 3)
		tl.at(-10)
		tl.wantUndecided(1, false)
		tl.wantUndecided(2, false)
		tl.at(5.5) // the first is the oldest, and was seen 5.5 s ago; the others 15.5 s ago
		tl.wantUndecided(2, false)
		tl.wantUndecided(2, false)
	})
	t.Run("sessions are opened before the time at which others were seen", func(t *testing.T) {
		t.Parallel()
		tl := newTimeline(t, 2)
		for i := range 6 {
			tl.at(2.5 * float64(i+1))
			tl.apply(0, false)
		}
		tl.at(5)
		tl.compareState()
		tl.at(6) // the second expires
		tl.compareState()
		tl.at(7)
		tl.open()
		tl.at(8)
		tl.wantUndecided(0, false)
		tl.at(23)
		tl.wantUndecided(0, true)
	})
	t.Run("no session is left", func(t *testing.T) {
		t.Parallel()
		tl := newTimeline(t, 1)
		tl.apply(0, true)
		tl.at(3600)
		tl.apply(0, false)
		tl.open()
		tl.wantUndecided(1, false)
	})
	t.Run("before 1970", func(t *testing.T) {
		t.Parallel()
		tl := newTimeline(t, 0)
		tl.begin = time.Unix(-1e6, 0)
		tl.at(0)
		var err error
		tl.model, err = protocol.New(tl.micros(), tl.config, 0)
		tl.must(err)
		tl.open()
		tl.open()
		tl.wantUndecided(1, false)
		tl.at(16)
		tl.wantUndecided(1, true)
	})
}

// TestStore_UndecidedReadsSessionsRarely checks that sessions are read when one may be
// overdue, not in every batch.
func TestStore_UndecidedReadsSessionsRarely(t *testing.T) {
	t.Parallel()
	store := openAlone(t, newSchema())
	config := protocol.Config{Capacity: 1, TTL: 20 * sessiontest.TTL} // longer than the test takes
	s := sessiontest.Begin(t, store, "a", config)
	for range 2000 {
		if _, _, err := store.Open(t.Context(), "a", config, sessiontest.Opener("other")); err != nil {
			t.Fatal(err)
		}
	}
	s.Send()
	before := touched(t, store, "session")
	const times = 50
	for range times {
		s.Send()
	}
	if each := (touched(t, store, "session") - before) / times; each > 20 {
		t.Errorf("a batch touched %d pages of sessions, want the few of its own", each)
	}
}
