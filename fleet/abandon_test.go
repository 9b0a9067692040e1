package fleet_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A twoWay store takes a second for a request, and another one for its reply. A call whose
// context ends during the first has no effect; one that ends during the second has.
type twoWay struct {
	fleet.Store
	request, reply func() time.Duration
}

func second() time.Duration { return time.Second }

func (w *twoWay) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	pass := func(takes time.Duration) bool {
		select {
		case <-time.After(takes):
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !pass(w.request()) {
		return protocol.Reply{}, errCut
	}
	r, err := w.Store.Apply(context.Background(), name, b)
	if !pass(w.reply()) {
		return protocol.Reply{}, errCut
	}
	return r, err
}

// TestInline_CancelledAtEveryPoint checks that a caller which sends its batch itself returns as
// soon as its context ends: before the store has the batch, afterwards, and with the reply. No
// permit is lost, and a caller whose operation is in the same or the next batch does not fail.
func TestInline_CancelledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 1, time.Second - 1, time.Second, time.Second + 1, 2*time.Second - 1, 2 * time.Second, 2*time.Second + 1} {
		for _, deadline := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c, s := twoWayClient(t, &twoWay{store, second, second}, of(2, fleet.TTL(10*time.Minute)))
				before := s.Stats().Exchanges
				ctx, cancel := context.WithCancel(context.Background())
				if deadline {
					ctx, cancel = context.WithTimeout(context.Background(), after)
				} else {
					time.AfterFunc(after, cancel)
				}
				defer cancel()
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					p, err := s.Acquire(ctx, 1)
					took := time.Since(start)
					switch {
					case err == nil && after >= 2*time.Second:
						p.Release()
					case err == nil:
						t.Errorf("cancelled after %v: a permit after %v", after, took)
					case !errors.Is(err, ctx.Err()):
						t.Errorf("cancelled after %v: %v", after, err)
					case took != after:
						t.Errorf("cancelled after %v: returned after %v", after, took)
					}
				})
				synctest.Wait() // the first caller sends its batch itself
				wg.Go(func() { mustAcquire(t, s, 1).Release() })
				wg.Wait()
				time.Sleep(10 * time.Second)
				if held, queued := inUse(t, store); held != 0 || queued != 0 {
					t.Errorf("cancelled after %v: %d permits in use, %d tickets queued", after, held, queued)
				}
				if failures := s.Stats().Exchanges.Failures - before.Failures; failures != 0 {
					t.Errorf("cancelled after %v: %d failures of the store were counted", after, failures)
				}
				wantErr(t, c.Close(context.Background()), nil)
			})
		}
	}
}

// twoWayClient returns a semaphore with an open session.
func twoWayClient(t *testing.T, store *twoWay, o spec) (*fleet.Client, *fleet.Semaphore) {
	t.Helper()
	c := fleet.New(store)
	c.UseBubbleClock()
	t.Cleanup(func() { c.Close(context.Background(), fleet.CloseAbandon) })
	s := semaphore(t, c, o)
	mustAcquire(t, s, 1).Release()
	time.Sleep(10 * time.Second)
	return c, s
}

// TestInline_ReleaseIsSentByAnotherWhenAbandoned checks that a release takes effect although its
// caller stops to wait for the confirmation.
func TestInline_ReleaseIsSentByAnotherWhenAbandoned(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{1, time.Second - 1, time.Second + 1, 2*time.Second - 1} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, s := twoWayClient(t, &twoWay{store, second, second}, of(1, fleet.TTL(10*time.Minute)))
			p := mustAcquire(t, s, 1)
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			start := time.Now()
			wantErr(t, fleet.Release(ctx, p), context.DeadlineExceeded)
			if took := time.Since(start); took != after {
				t.Errorf("it returned after %v, want %v", took, after)
			}
			mustAcquire(t, s, 1).Release()
			if took := time.Since(start); took > after+4*time.Second {
				t.Errorf("the permit was free after %v", took)
			}
			wantErr(t, c.Close(context.Background()), nil)
		})
	}
}

// TestInline_LimitsEndTheExchange checks that MaxWait and TryTimeout end the wait of a caller that
// sends its batch itself to a store that does not reply.
func TestInline_LimitsEndTheExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c := fleet.New(w)
		c.UseBubbleClock()
		s := semaphore(t, c, of(2, sema.MaxWait(300*time.Millisecond), fleet.TryTimeout(200*time.Millisecond)))
		mustAcquire(t, s, 1).Release()
		time.Sleep(time.Second)
		for _, one := range []struct {
			acquire func(context.Context, int64) (sema.Permit, error)
			within  time.Duration
		}{{s.Acquire, 300 * time.Millisecond}, {s.TryAcquire, 200 * time.Millisecond}} {
			w.lose.Store(1)
			start := time.Now()
			p, err := one.acquire(context.Background(), 1) // the driver sends the lost batch again after a while
			if took := time.Since(start); took > one.within {
				t.Errorf("it took %v, want at most %v", took, one.within)
			}
			if err == nil {
				p.Release()
			}
			w.lose.Store(0)
			time.Sleep(time.Minute)
		}
		wantErr(t, c.Close(context.Background()), nil)
	})
}

// TestInline_RandomCancellations lets callers of two clients give up at random times, with random
// delays on the way, and checks that no permit is granted twice or lost.
func TestInline_RandomCancellations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const capacity = 2
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 20))
			upTo := func(most time.Duration) func() time.Duration {
				return func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(random.Int64N(int64(most)))
				}
			}
			store := memstore.New()
			var held, granted atomic.Int64
			var wg sync.WaitGroup
			give := upTo(60 * time.Millisecond)
			var clients []*fleet.Client
			for range 2 {
				c, s := twoWayClient(t, &twoWay{store, upTo(10 * time.Millisecond), upTo(10 * time.Millisecond)}, of(capacity, fleet.TTL(time.Minute)))
				clients = append(clients, c)
				for range 6 {
					wg.Go(func() {
						for range 40 {
							ctx, cancel := context.WithCancel(context.Background())
							time.AfterFunc(give(), cancel)
							p, err := s.Acquire(ctx, 1)
							if err == nil {
								granted.Add(1)
								if n := held.Add(1); n > capacity {
									t.Errorf("seed %d: %d holders", seed, n)
								}
								time.Sleep(give() / 20)
								held.Add(-1)
								_ = fleet.Release(ctx, p)
							} else if !errors.Is(err, context.Canceled) {
								t.Errorf("seed %d: %v", seed, err)
							}
							cancel()
						}
					})
				}
			}
			wg.Wait()
			time.Sleep(time.Second)
			if held, queued := inUse(t, store); held != 0 || queued != 0 {
				t.Errorf("seed %d: %d permits in use, %d tickets queued", seed, held, queued)
			}
			if granted.Load() < 40 {
				t.Errorf("seed %d: only %d grants", seed, granted.Load())
			}
			for _, c := range clients {
				wantErr(t, c.Close(context.Background()), nil)
			}
		})
	}
}
