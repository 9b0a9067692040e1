package fleet_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestClient_WatchYieldsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(2))
		mustAcquire(t, s, 1)
		go func() {
			time.Sleep(time.Minute)
			mustAcquire(t, s, 1)
			time.Sleep(time.Minute)
			wantErr(t, c.Delete(t.Context(), "db"), nil)
		}()
		var seen []int64
		var ended error
		for snapshot, err := range c.Watch(t.Context(), "db", time.Second) {
			seen, ended = append(seen, snapshot.InUse), err
		}
		if !slices.Equal(seen, []int64{1, 2, 0}) || !errors.Is(ended, fs.ErrNotExist) {
			t.Errorf("yielded %v in use, and then %v", seen, ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mustAcquire(t, s, 1)
		changes := 0
		for range c.Watch(ctx, "db", time.Second) {
			changes++
		}
		if changes != 1 {
			t.Errorf("%d changes, want 1", changes)
		}
	})
}

func TestClient_PollsWithJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait()
		o.inspections = nil // without that of compareModes
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range c.Watch(ctx, "db", time.Second) {
		}
		o.wantScattered(t, time.Second)
		o.inspections = nil
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Drain(ctx, "db")
		wantErr(t, err, context.DeadlineExceeded)
		if fault := faultOf(t, err); fault.InUse != 1 || fault.Capacity != 1 || !strings.Contains(fault.Detail, "1 permits are still held") {
			t.Errorf("%+v", fault)
		}
		o.inspections = o.inspections[1:] // without that of Configure
		o.wantScattered(t, 200*time.Millisecond)
	})
}

func TestClient_WatchBoundsItsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait() // until compareModes has inspected
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range c.Watch(ctx, "db", time.Nanosecond) {
		}
		if n := len(o.inspections); n > 120 {
			t.Errorf("%d inspections in a second", n)
		}
	})
}

func TestClient_WatchContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		o := &inspectRecorder{Store: memstore.New()}
		c, _ := newClient(t, o)
		mustAcquire(t, semaphore(t, c, of(1)), 1)
		synctest.Wait() // until compareModes has inspected
		n := 0
		o.fail = func(context.Context) error {
			if n++; n == 1 {
				return failed
			}
			return nil
		}
		var seen []error
		for _, err := range c.Watch(t.Context(), "db", time.Second) {
			if seen = append(seen, err); len(seen) == 2 {
				break
			}
		}
		if len(seen) != 2 || seen[0] != failed || seen[1] != nil {
			t.Errorf("yielded %v, want an error and then a snapshot", seen)
		}
		// A loop that breaks at an error is not called again.
		o.fail = func(context.Context) error { return failed }
		for range c.Watch(t.Context(), "db", time.Second) {
			break
		}
		// The end of the context is not yielded as an error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o.fail = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		for _, err := range c.Watch(ctx, "db", time.Second) {
			t.Errorf("yielded %v", err)
		}
	})
}

func TestClient_WatchIgnoresHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var last *fleet.Client
		for range 3 {
			last, _ = newClient(t, store)
			mustAcquire(t, semaphore(t, last, of(3)), 1)
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		changes := 0
		for range last.Watch(ctx, "db", time.Second) {
			changes++
		}
		if changes != 1 {
			t.Errorf("%d changes, want 1: there were only heartbeats", changes)
		}
	})
}
