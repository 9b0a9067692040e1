package fleet_test

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// inlineSemaphore returns a semaphore with an open session, over a wire.
func inlineSemaphore(t *testing.T, w *wire) (*fleet.Client, *fleet.Semaphore) {
	t.Helper()
	c := fleet.New(w)
	c.UseBubbleClock()
	s := semaphore(t, c, of(10))
	mustAcquire(t, s, 1).Release()
	time.Sleep(3 * w.rtt)
	return c, s
}

// TestSession_InlineExchangeDelaysNoOtherCaller checks that a caller which sends a batch in its
// own goroutine delays no other caller, and is not delayed by others.
func TestSession_InlineExchangeDelaysNoOtherCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := inlineSemaphore(t, &wire{Store: memstore.New(), rtt: time.Second})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { // sends the batch itself
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != time.Second {
				t.Errorf("the inline caller got its reply after %v", took)
			}
		})
		synctest.Wait()
		wg.Go(func() { // joins the next batch, and gives up
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != 100*time.Millisecond {
				t.Errorf("the caller that gave up returned after %v", took)
			}
		})
		wg.Go(func() { // joins the next batch
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("the later caller got its reply after %v", took)
			}
		})
		wg.Wait()
		wantErr(t, c.Close(context.Background(), fleet.CloseAbandon), nil)
	})
}

func TestSession_LostInlineBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.lose.Store(1)
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, c.Close(context.Background()), nil)
	})
}

// A stackStore notes in whose goroutine the last batch was sent.
type stackStore struct {
	fleet.Store
	mu     sync.Mutex
	inline bool
}

func (s *stackStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	s.mu.Lock()
	s.inline = strings.Contains(string(debug.Stack()), "exchangeInline")
	s.mu.Unlock()
	return s.Store.Apply(ctx, name, b)
}

func (s *stackStore) wantInline(t *testing.T, want bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inline != want {
		t.Errorf("sent by the caller: %v, want %v", s.inline, want)
	}
}

// TestCaller_SendsTheBatchItself checks that a caller that waits for the store sends the batch,
// whatever its context and its limits are, and that a caller which has given up does not.
func TestCaller_SendsTheBatchItself(t *testing.T) {
	t.Parallel()
	store := &stackStore{Store: memstore.New()}
	c := fleet.New(store)
	s := semaphore(t, c, of(10, sema.MaxWait(time.Second)))
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, fleet.Release(over, mustAcquire(t, s, 1)), context.Canceled) // opens the session
	for _, ctx := range []context.Context{context.Background(), cancellable, limited} {
		for range 3 {
			p, err := s.Acquire(ctx, 1)
			wantErr(t, err, nil)
			store.wantInline(t, true)
			wantErr(t, fleet.Release(ctx, p), nil)
			store.wantInline(t, true)
			wantErr(t, fleet.Release(ctx, p), nil)
			q, err := s.TryAcquire(ctx, 1)
			wantErr(t, err, nil)
			store.wantInline(t, true)
			wantErr(t, fleet.Release(over, q), context.Canceled)
			wantErr(t, fleet.Release(ctx, mustAcquire(t, s, 1)), nil)
		}
	}
	if held := s.Stats().InUse; held != 0 {
		t.Errorf("%d permits held", held)
	}
	wantErr(t, c.Close(context.Background()), nil)
}

// TestRelease_LostInlineBatchIsSentAgain checks that a release is confirmed although its batch
// was lost, and that releases of copies in several goroutines end.
func TestRelease_LostInlineBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		p := mustAcquire(t, s, 1)
		w.lose.Store(1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { wantErr(t, fleet.Release(context.Background(), p), nil) })
		}
		wg.Wait()
		if info, err := c.Info(context.Background(), s.Name()); err != nil || info.InUse != 0 {
			t.Errorf("%d permits in use, %v", info.InUse, err)
		}
		wantErr(t, c.Close(context.Background()), nil)
	})
}

func TestClient_CloseEndsAnInlineExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.cut.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Acquire(context.Background(), 1)
			wantErr(t, err, sema.ErrClosed)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx, fleet.CloseAbandon)
		wg.Wait()
	})
}

// TestSemaphore_InlineTryAcquireIsBoundedByTryTimeout checks that a try whose context cannot be
// cancelled, and which could send its batch itself, is bounded.
func TestSemaphore_InlineTryAcquireIsBoundedByTryTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.cut.Store(true)
		start := time.Now()
		_, err := s.TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrUnavailable)
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v, want TryTimeout", took)
		}
		w.cut.Store(false)
		_ = c.Close(context.Background(), fleet.CloseAbandon)
	})
}
