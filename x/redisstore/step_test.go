package redisstore

import (
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestStore_ClockThatStepsBeyondTheLifetimeOfKeys steps the server's clock forward by
// more than the lifetime of an unused semaphore, so that the keys of a held semaphore
// expire.
func TestStore_ClockThatStepsBeyondTheLifetimeOfKeys(t *testing.T) {
	t.Parallel()
	for form, settings := range map[string][]string{"functions": nil, "script": {"--rename-command", "FUNCTION", ""}} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock(t)
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
