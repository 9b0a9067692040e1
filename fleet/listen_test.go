package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet/memstore"
)

func TestClient_ListenRetriesWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: errCut}
		newClient(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		seen := map[time.Duration]bool{}
		for i := range h.calls[1:] {
			gap := h.calls[i+1].Sub(h.calls[i])
			if limit := min(time.Second, 10*time.Millisecond<<min(i, 10)); gap > limit || gap < limit/2 {
				t.Errorf("pause %d is %v, want between half of %v and all of it", i, gap, limit)
			}
			seen[gap] = true
		}
		if n := len(h.calls); n < 60 || n > 130 || len(seen) < n/2 {
			t.Errorf("%d subscriptions with %d different pauses", n, len(seen))
		}
	})
}

func TestClient_LongSubscriptionIsRetriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: errCut}
		newClient(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		h.lasts = time.Minute
		h.calls = nil
		h.mu.Unlock()
		time.Sleep(10 * time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range h.calls[1:] {
			if gap := h.calls[i+1].Sub(h.calls[i]) - time.Minute; gap > 10*time.Millisecond {
				t.Errorf("retried after %v, want at most the first pause", gap)
			}
		}
		h.lasts = 0
	})
}

func TestClient_UnsupportedListenIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failingListener{Store: memstore.New(), err: fmt.Errorf("listen: %w", errors.ErrUnsupported)}
		newClient(t, h)
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.calls); n != 1 {
			t.Errorf("%d subscriptions, want 1", n)
		}
	})
}
