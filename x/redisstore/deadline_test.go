package redisstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// A session that speaks often is not noted in the sorted set each time, and must
// not hide one that is dead behind its old deadline.
func TestADeadlineThatIsNotedLateHidesNobody(t *testing.T) {
	t.Parallel()
	store := openClocked(t, redistest.Start(t).URL())
	at := time.Now()
	pass := func(d time.Duration) {
		at = at.Add(d)
		store.SetClock(at)
	}
	pass(0)
	config := protocol.Config{Capacity: 1, TTL: protocol.Micros(time.Minute / time.Microsecond)}
	lively := sessiontest.Begin(t, store.Store, "db", config)
	pass(time.Microsecond)
	dead := sessiontest.Begin(t, store.Store, "db", config)
	dead.Granted(1, sessiontest.Acquire(1, 1))
	pass(time.Millisecond)
	lively.Say() // dies a millisecond after the other, and is noted before it
	waiter := sessiontest.Begin(t, store.Store, "db", config)
	waiter.Say(sessiontest.Acquire(1, 1))
	for range 6 {
		pass(10*time.Second - 300*time.Microsecond)
		if r := waiter.Say(); len(r.Results) > 0 {
			t.Fatal("granted before the holder was dead")
		}
	}
	pass(1200 * time.Microsecond) // the holder is dead, the lively one is not
	waiter.Granted(1)
	lively.Say()
}
