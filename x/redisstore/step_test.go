package redisstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// The server's clock steps forward by more than a semaphore that is not used is kept
// for, so that its keys expire while it is held.
func TestStore_ClockThatStepsBeyondTheLifetimeOfKeys(t *testing.T) {
	t.Parallel()
	for form, settings := range map[string][]string{"functions": nil, "script": {"--rename-command", "FUNCTION", ""}} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			clock := enginetest.NewClock(t)
			server := redistest.Start(clock.For(t), settings...)
			a := join(t, openServer(t, server))
			first := a.hold(2)
			began := time.Now()
			clock.Set(30 * 24 * time.Hour)
			second := join(t, openServer(t, server)).hold(2)
			if took := time.Since(began); took < time.Duration(shortTTL)*time.Microsecond {
				t.Errorf("granted %v after the clock stepped, with a TTL of %d µs", took, shortTTL)
			}
			a.wantLost()
			wantHandover(t, first, second)
		})
	}
}
