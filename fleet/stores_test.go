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

// faultOf is the error as sema says it.
func faultOf(t *testing.T, err error) *sema.Error {
	t.Helper()
	var fault *sema.Error
	if !errors.As(err, &fault) {
		t.Fatalf("%v is no fault", err)
	}
	return fault
}

// hasty is a store whose clock is twice as fast, and that is looked at so often
// that its semaphores' clocks follow.
func hasty(t *testing.T) *memstore.Store {
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

// A naive guard remembers every Seq.
type naive struct {
	floor   protocol.Seq
	revoked map[protocol.Seq]bool
}

func (n *naive) admit(f protocol.Fence) bool {
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

// An onlooker notes when somebody looks, and may fail or say that somebody was
// quicker.
type onlooker struct {
	fleet.Store
	mu     sync.Mutex
	looks  []time.Time
	fail   func(context.Context) error
	always error // of Administer
	asked  atomic.Int64
}

func (o *onlooker) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	o.mu.Lock()
	o.looks = append(o.looks, time.Now())
	fail := o.fail
	o.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return protocol.Snapshot{}, err
		}
	}
	return o.Store.Inspect(ctx, name)
}

func (o *onlooker) Administer(ctx context.Context, name string, c fleet.Command) error {
	o.asked.Add(1)
	if o.always != nil {
		return o.always
	}
	return o.Store.Administer(ctx, name, c)
}

// wantScattered fails the test unless the looks are about so far apart, and not
// in step.
func (o *onlooker) wantScattered(t *testing.T, apart time.Duration) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[time.Duration]bool{}
	for i := range o.looks[1:] {
		gap := o.looks[i+1].Sub(o.looks[i])
		if gap < apart*9/10 || gap > apart*11/10+1 {
			t.Errorf("%v between two looks, want about %v", gap, apart)
		}
		seen[gap] = true
	}
	if len(o.looks) < 20 || len(seen) < len(o.looks)/2 {
		t.Errorf("%d looks, and %d different pauses", len(o.looks), len(seen))
	}
}

// A hard of hearing store ends every subscription.
type hardOfHearing struct {
	fleet.Store
	mu    sync.Mutex
	calls []time.Time
	lasts time.Duration
	err   error
}

func (h *hardOfHearing) Listen(ctx context.Context, _ string, _ func(string)) error {
	h.mu.Lock()
	h.calls = append(h.calls, time.Now())
	lasts := h.lasts
	h.mu.Unlock()
	time.Sleep(lasts)
	return h.err
}

// A broken store fails at once.
type broken struct{ fleet.Store }

func (broken) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, errCut
}

// A wire takes its time, and gives up with the context. It may lose what is said.
type wire struct {
	fleet.Store
	rtt   time.Duration
	dead  atomic.Bool
	lose  atomic.Int64 // how many batches
	valid protocol.Micros
}

func (w *wire) pass(ctx context.Context, lost bool) error {
	var passed <-chan time.Time
	if !lost && !w.dead.Load() {
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

// A sluggish store takes its time for commands.
type sluggish struct {
	fleet.Store
	delay time.Duration
}

func (s sluggish) Administer(ctx context.Context, name string, c fleet.Command) error {
	time.Sleep(s.delay)
	return s.Store.Administer(ctx, name, c)
}

// keepsOpen is a local engine that outlives a region.
type keepsOpen struct{ fleet.Store }

func (keepsOpen) Close() error { return nil }
