package classic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

// A taken is what TakeAny returns.
type taken struct{ v, i int }

func takingAny(ctx context.Context, from ...*classic.Buffer[int]) *call[taken] {
	return start(func() (taken, error) {
		v, i, err := classic.TakeAny(ctx, from...)
		return taken{v, i}, err
	})
}

func newBuffers(n, capacity int, opts ...sema.SharedOption) (all []*classic.Buffer[int]) {
	for range n {
		all = append(all, classic.NewBuffer[int](capacity, opts...))
	}
	return all
}

// wantNoWaiters fails if a buffer still has a consumer in its queue.
func wantNoWaiters(t testing.TB, all []*classic.Buffer[int]) {
	t.Helper()
	for i, b := range all {
		if st := b.Stats().Takes; st.Waiters != 0 {
			t.Errorf("buffer %d: %d consumers wait", i, st.Waiters)
		}
	}
}

func TestTakeAny_TakesFromTheBufferThatHasAnItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newBuffers(3, 2)
		for i, b := range all {
			wantErr(t, b.Put(t.Context(), 10*i), nil)
			if got := takingAny(t.Context(), all...).want(t); got != (taken{10 * i, i}) {
				t.Errorf("%+v, want item %d of buffer %d", got, 10*i, i)
			}
			c := takingAny(t.Context(), all...)
			c.wantWaiting(t)
			wantErr(t, b.Put(t.Context(), 10*i+1), nil)
			if got := c.want(t); got != (taken{10*i + 1, i}) {
				t.Errorf("%+v, want item %d of buffer %d", got, 10*i+1, i)
			}
			wantNoWaiters(t, all)
		}
		same := takingAny(t.Context(), all[0], all[0])
		wantErr(t, all[0].Put(t.Context(), 5), nil)
		if got := same.want(t); got.v != 5 {
			t.Errorf("one buffer twice: %+v", got)
		}
		wantNoWaiters(t, all)
	})
}

func TestTakeAny_WaitsInOrderWithOtherConsumers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newBuffers(2, 1)
		before := taking(t.Context(), all[1])
		c := takingAny(t.Context(), all...)
		after := taking(t.Context(), all[1])
		wantErr(t, all[1].Put(t.Context(), 1), nil)
		if before.want(t) != 1 {
			t.Error("the consumer before it got another item")
		}
		c.wantWaiting(t)
		wantErr(t, all[1].Put(t.Context(), 2), nil)
		if got := c.want(t); got != (taken{2, 1}) {
			t.Errorf("%+v", got)
		}
		after.wantWaiting(t)
		wantErr(t, all[1].Put(t.Context(), 3), nil)
		if after.want(t) != 3 {
			t.Error("the consumer after it got another item")
		}
	})
}

// TestTakeAny_StarvesNoBuffer keeps all buffers full: each must get about its share.
func TestTakeAny_StarvesNoBuffer(t *testing.T) {
	t.Parallel()
	const n, rounds = 4, 4000
	all := newBuffers(n, 1)
	var counts [n]int
	for range rounds {
		for _, b := range all {
			b.TryPut(1)
		}
		_, i, err := classic.TakeAny(t.Context(), all...)
		wantErr(t, err, nil)
		counts[i]++
	}
	for i, c := range counts {
		if c < rounds/n*3/4 || c > rounds/n*5/4 {
			t.Errorf("buffer %d served %d of %d, want about a %dth", i, c, rounds, n)
		}
	}
}

func TestTakeAny_FailsOnceAllAreClosedAndEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newBuffers(2, 1)
		c := takingAny(t.Context(), all...)
		all[0].Close()
		c.wantWaiting(t)
		wantErr(t, all[1].Put(t.Context(), 1), nil)
		if got := c.want(t); got != (taken{1, 1}) {
			t.Errorf("%+v", got)
		}
		wantErr(t, all[1].Put(t.Context(), 2), nil)
		all[1].Close()
		if got := takingAny(t.Context(), all...).want(t); got != (taken{2, 1}) {
			t.Errorf("%+v, want the item of a closed buffer", got)
		}
		takingAny(t.Context(), all...).wantErr(t, sema.ErrClosed)

		all = newBuffers(2, 1)
		c = takingAny(t.Context(), all...)
		all[1].Close()
		all[0].Close()
		c.wantErr(t, sema.ErrClosed)
		if c.value.i != -1 {
			t.Errorf("index %d of a failure", c.value.i)
		}
		for _, b := range all {
			if st := b.Stats().Takes; st.Rejected != 1 || st.Waiters != 0 {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestTakeAny_BoundsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := classic.NewBuffer[int](1)
		fast := classic.NewBuffer[int](1, sema.Name("fast"), sema.MaxWait(time.Second))
		begin := time.Now()
		c := takingAny(t.Context(), slow, fast)
		time.Sleep(time.Second)
		c.wantErr(t, sema.ErrTimeout)
		var e *sema.Error
		if !errors.As(c.err, &e) || e.Name != "fast" || e.Detail != "1s" || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", c.err, time.Since(begin))
		}
		none := classic.NewBuffer[int](1, sema.Name("none"), sema.MaxWaiters(0))
		c = takingAny(t.Context(), slow, none)
		c.wantErr(t, sema.ErrQueueFull)
		if !errors.As(c.err, &e) || e.Name != "none" {
			t.Error(c.err)
		}
		wantNoWaiters(t, []*classic.Buffer[int]{slow, fast, none})
		ctx, cancel := context.WithCancelCause(t.Context())
		c = takingAny(ctx, slow, fast)
		cancel(errCause)
		c.wantErr(t, errCause)
		wantNoWaiters(t, []*classic.Buffer[int]{slow, fast})
	})
}

func TestTakeAny_RejectsWhatIsInvalid(t *testing.T) {
	t.Parallel()
	b := classic.NewBuffer[int](1)
	for _, from := range [][]*classic.Buffer[int]{nil, {b, nil}} {
		_, i, err := classic.TakeAny(t.Context(), from...)
		wantErr(t, err, sema.ErrInvalid)
		if i != -1 {
			t.Errorf("index %d", i)
		}
	}
	_, _, err := classic.TakeAny(noContext, b)
	wantErr(t, err, sema.ErrInvalid)
}

func TestTakeAny_ReportsToTheBufferThatServesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first, second journal
		a, b := classic.NewBuffer[int](1, sema.Observe(&first)), classic.NewBuffer[int](1, sema.Observe(&second))
		c := takingAny(t.Context(), a, b)
		b.TryPut(1)
		c.want(t)
		if first.want(t); len(second.find(sema.EventAcquired)) != 2 { // the TryPut, and this
			t.Errorf("events %q", second.take())
		}
		ctx, cancel := context.WithCancel(t.Context())
		second.take()
		c = takingAny(ctx, a, b)
		cancel()
		c.wantErr(t, context.Canceled)
		first.want(t, "take cancelled")
		second.want(t, "take cancelled")
	})
}

// TestTakeAny_Explored has two consumers of two buffers that give up, producers, and a close.
func TestTakeAny_Explored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		all := newBuffers(2, 1)
		put, got := 0, 0
		w.Finally("every item is taken or in its buffer, and none waits", func() bool {
			left := 0
			for _, b := range all {
				left += b.Len()
				if b.Stats().Takes.Waiters != 0 {
					return false
				}
			}
			return put == got+left
		})
		for i := range 2 {
			w.Go(fmt.Sprint("producer ", i), func(ctx context.Context) {
				for range 3 {
					limited, cancel := context.WithTimeout(ctx, time.Millisecond)
					err := all[i].Put(limited, 1)
					cancel()
					w.Yield()
					if err == nil {
						put++
					}
				}
				all[i].Close()
			})
			w.Go(fmt.Sprint("consumer ", i), func(ctx context.Context) {
				for {
					limited, cancel := context.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
					_, _, err := classic.TakeAny(limited, all...)
					cancel()
					w.Yield()
					if err == nil {
						got++
					} else if errors.Is(err, sema.ErrClosed) || ctx.Err() != nil {
						return
					}
				}
			})
		}
	}, sematest.Slow(2*time.Millisecond))
}

// TestTakeAny_LosesNoItemUnderStress races TakeAny, Take, cancels and Close.
func TestTakeAny_LosesNoItemUnderStress(t *testing.T) {
	t.Parallel()
	all := newBuffers(3, 2)
	var producers, consumers sync.WaitGroup
	var mu sync.Mutex
	balance := 0
	note := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		balance += d
	}
	for g, b := range all {
		producers.Go(func() {
			for range stressRounds {
				wantErr(t, b.Put(context.Background(), 1), nil)
				note(1)
			}
		})
		for k := range 2 {
			consumers.Go(func() {
				for i := 0; ; i++ {
					ctx, cancel := context.WithCancel(context.Background())
					if i%2 == 0 {
						go cancel()
					}
					var err error
					if k == 0 && g == 0 {
						_, err = b.Take(ctx)
					} else {
						_, _, err = classic.TakeAny(ctx, all...)
					}
					cancel()
					if err == nil {
						note(-1)
					} else if errors.Is(err, sema.ErrClosed) {
						return
					}
				}
			})
		}
	}
	producers.Wait()
	for _, b := range all {
		b.Close()
	}
	consumers.Wait()
	if balance != 0 {
		t.Errorf("%d items were put and not taken", balance)
	}
	wantNoWaiters(t, all)
}
