package fleet_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// faultOf returns the *sema.Error that err wraps.
func faultOf(t *testing.T, err error) *sema.Error {
	t.Helper()
	var fault *sema.Error
	if !errors.As(err, &fault) {
		t.Fatalf("%v wraps no *sema.Error", err)
	}
	return fault
}

// fastClockStore returns a store whose clock is twice as fast. It is inspected often, so that the
// clocks of its semaphores follow.
func fastClockStore(t *testing.T) *memstore.Store {
	begin := time.Now()
	store := memstore.NewWithClock(func() time.Time { return begin.Add(2 * time.Since(begin)) })
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
				store.Inspect(t.Context(), "db")
			}
		}
	}()
	return store
}

// A referenceGuard stores every revoked Seq.
type referenceGuard struct {
	floor   protocol.Seq
	revoked map[protocol.Seq]bool
}

func (n *referenceGuard) admit(f protocol.Fence) bool {
	if f.Seq < n.floor || n.revoked[f.Seq] {
		return false
	}
	n.floor = max(n.floor, f.Floor)
	for _, r := range f.Revoked {
		for seq := r.From; seq <= r.To; seq++ {
			n.revoked[seq] = true
		}
	}
	return true
}

// An inspectRecorder records the times of inspections. Inspect and Administer may fail.
type inspectRecorder struct {
	fleet.Store
	mu            sync.Mutex
	inspections   []time.Time
	fail          func(context.Context) error
	administerErr error
	administered  atomic.Int64
}

func (o *inspectRecorder) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	o.mu.Lock()
	o.inspections = append(o.inspections, time.Now())
	fail := o.fail
	o.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return protocol.Snapshot{}, err
		}
	}
	return o.Store.Inspect(ctx, name)
}

func (o *inspectRecorder) Administer(ctx context.Context, name string, c fleet.Command) error {
	o.administered.Add(1)
	if o.administerErr != nil {
		return o.administerErr
	}
	return o.Store.Administer(ctx, name, c)
}

// wantScattered fails the test unless the inspections are about that far apart, with jitter.
func (o *inspectRecorder) wantScattered(t *testing.T, apart time.Duration) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[time.Duration]bool{}
	for i := range o.inspections[1:] {
		gap := o.inspections[i+1].Sub(o.inspections[i])
		if gap < apart*9/10 || gap > apart*11/10+1 {
			t.Errorf("%v between two inspections, want about %v", gap, apart)
		}
		seen[gap] = true
	}
	if len(o.inspections) < 20 || len(seen) < len(o.inspections)/2 {
		t.Errorf("%d inspections with %d different pauses", len(o.inspections), len(seen))
	}
}

// A failingListener ends every subscription.
type failingListener struct {
	fleet.Store
	mu    sync.Mutex
	calls []time.Time
	lasts time.Duration
	err   error
}

func (h *failingListener) Listen(ctx context.Context, _ string, _ func(string)) error {
	h.mu.Lock()
	h.calls = append(h.calls, time.Now())
	lasts := h.lasts
	h.mu.Unlock()
	time.Sleep(lasts)
	return h.err
}

// A failingStore fails every Open immediately.
type failingStore struct{ fleet.Store }

func (failingStore) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, errCut
}

// A wire delays each call by rtt. It can lose batches, or all calls: a lost call fails when its
// context ends.
type wire struct {
	fleet.Store
	rtt   time.Duration
	cut   atomic.Bool
	lose  atomic.Int64 // number of batches to lose
	valid protocol.Micros
}

func (w *wire) pass(ctx context.Context, lost bool) error {
	var passed <-chan time.Time
	if !lost && !w.cut.Load() {
		passed = time.After(w.rtt)
	}
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return errCut
	}
}

func (w *wire) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := w.pass(ctx, false); err != nil {
		return 0, protocol.Config{}, err
	}
	return w.Store.Open(ctx, name, c, by)
}

func (w *wire) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := w.pass(ctx, w.lose.Add(-1) >= 0); err != nil {
		return protocol.Reply{}, err
	}
	r, err := w.Store.Apply(ctx, name, b)
	r.Valid = w.valid
	return r, err
}

// A slowAdminStore delays commands.
type slowAdminStore struct {
	fleet.Store
	delay time.Duration
}

func (s slowAdminStore) Administer(ctx context.Context, name string, c fleet.Command) error {
	time.Sleep(s.delay)
	return s.Store.Administer(ctx, name, c)
}

// An unclosedStore is a local store that is not closed with its region.
type unclosedStore struct{ fleet.Store }

func (unclosedStore) Close() error { return nil }
