package redisstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest/redistest"
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
	lively := begin(t, store.Store, "db", config)
	pass(time.Microsecond)
	dead := begin(t, store.Store, "db", config)
	dead.granted(1, acquire(1, 1))
	pass(time.Millisecond)
	lively.say() // dies a millisecond after the other, and is noted before it
	waiter := begin(t, store.Store, "db", config)
	waiter.say(acquire(1, 1))
	for range 6 {
		pass(10*time.Second - 300*time.Microsecond)
		if r := waiter.say(); len(r.Fates) > 0 {
			t.Fatal("granted before the holder was dead")
		}
	}
	pass(1200 * time.Microsecond) // the holder is dead, the lively one is not
	waiter.granted(1)
	lively.say()
}
