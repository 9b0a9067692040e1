//go:build linux && !sema_portable

package host

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClock_IsSharedByAllProcesses checks that the clock is that of the machine, also in
// a testing/synctest bubble.
func TestClock_IsSharedByAllProcesses(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T) {
		for range 100 {
			before := readClock()
			now := clock()
			after := readClock()
			const inaccuracy = time.Second // far more than that of clockEpoch, far less than any wrong clock
			if now < before-inaccuracy || now > after+inaccuracy {
				t.Fatalf("%v, want between %v and %v", now, before, after)
			}
		}
	}
	check(t)
	synctest.Test(t, check)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		check(t)
	})
}
