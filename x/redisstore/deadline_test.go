package redisstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestSession_OutdatedScoreHidesNoExpiredSession checks that an active session does not
// hide an expired session that sorts after it. Not every batch updates the score of its
// session in the sorted set.
func TestSession_OutdatedScoreHidesNoExpiredSession(t *testing.T) {
	t.Parallel()
	store := openClocked(t, redistest.Start(t).URL())
	at := time.Now()
	pass := func(d time.Duration) {
		at = at.Add(d)
		store.SetClock(at)
	}
	pass(0)
	config := protocol.Config{Capacity: 1, TTL: protocol.Micros(time.Minute / time.Microsecond)}
	live := sessiontest.Begin(t, store.Store, "db", config)
	pass(time.Microsecond)
	expiring := sessiontest.Begin(t, store.Store, "db", config)
	expiring.Granted(1, sessiontest.Acquire(1, 1))
	pass(time.Millisecond)
	live.Send() // its deadline is a millisecond after the other's, its score before
	waiter := sessiontest.Begin(t, store.Store, "db", config)
	waiter.Send(sessiontest.Acquire(1, 1))
	for range 6 {
		pass(10*time.Second - 300*time.Microsecond)
		if r := waiter.Send(); len(r.Results) > 0 {
			t.Fatal("granted before the holder expired")
		}
	}
	pass(1200 * time.Microsecond) // the holder has expired, the live session has not
	waiter.Granted(1)
	live.Send()
}
