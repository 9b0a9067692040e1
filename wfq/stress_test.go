package wfq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
	"github.com/sema-go/sema/wfq"
)

// TestQueue_BoundsHoldUnderRaces uses a queue from many goroutines, at a load at which it
// changes between calm and slow all the time. Neither the capacity nor the Max of a class
// is ever exceeded, and every waiter is served.
func TestQueue_BoundsHoldUnderRaces(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int64{2, 5, 12} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			t.Parallel()
			const rounds = 3000
			q := wfq.New(capacity)
			limits := map[string]int64{"one": 1, "two": 2, "free": capacity}
			q.Set("one", wfq.Share{Max: 1, Tier: 1})
			q.Set("two", wfq.Share{Max: 2, Min: 1, Order: wfq.LIFO})
			var total atomic.Int64
			held := map[string]*atomic.Int64{"one": {}, "two": {}, "free": {}}
			var wg sync.WaitGroup
			for class, limit := range limits {
				for g := range 3 {
					rng := rand.New(rand.NewPCG(uint64(g), uint64(limit)))
					wg.Go(func() {
						gate := q.Class(class)
						for i := range rounds {
							n := 1 + rng.Int64N(min(limit, 2))
							ctx, cancel := context.WithTimeout(ctx, time.Minute)
							acquire := gate.Acquire
							switch rng.IntN(8) {
							case 0:
								acquire = gate.TryAcquire
							case 1:
								time.AfterFunc(time.Duration(rng.IntN(20))*time.Microsecond, cancel)
							}
							p, err := acquire(ctx, n)
							if err == context.DeadlineExceeded {
								t.Errorf("class %s: a waiter was not served", class)
							}
							cancel()
							if err != nil {
								continue
							}
							if sum := total.Add(n); sum > capacity {
								t.Errorf("%d of %d held", sum, capacity)
							}
							if sum := held[class].Add(n); sum > limit {
								t.Errorf("class %s: %d of %d held", class, sum, limit)
							}
							if i%5 == 0 {
								time.Sleep(time.Microsecond)
							}
							held[class].Add(-n)
							total.Add(-n)
							p.Release()
						}
					})
				}
			}
			wg.Wait()
			if err := q.CheckInvariants(); err != nil {
				t.Error(err)
			}
			if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 || st.Free != capacity {
				t.Errorf("in the end: %+v", st)
			}
		})
	}
}

// TestQueue_ChangesUnderRaces changes shares, capacity and phase while goroutines use the
// queue through classes that come and go.
func TestQueue_ChangesUnderRaces(t *testing.T) {
	t.Parallel()
	const rounds = 2000
	q := wfq.New(3, sema.MaxWaiters(6), wfq.Aging(time.Millisecond))
	var wg sync.WaitGroup
	for g := range 6 {
		rng := rand.New(rand.NewPCG(uint64(g), 7))
		wg.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(1000))*time.Microsecond)
				p, err := q.Acquire(wfq.With(ctx, fmt.Sprint("class ", rng.IntN(5))), 1+rng.Int64N(2))
				cancel()
				if err == nil && rng.IntN(3) == 0 && p.Weight() == 2 {
					first, rest, err := p.Split(1)
					if err != nil {
						t.Error(err)
					}
					first.Release()
					p = rest
				}
				p.Release()
			}
		})
	}
	stop, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		rng := rand.New(rand.NewPCG(9, 9))
		for {
			select {
			case <-stop:
				return
			default:
			}
			switch rng.IntN(4) {
			case 0:
				q.Resize(rng.Int64N(5))
			case 1:
				q.Set(fmt.Sprint("class ", rng.IntN(3)), wfq.Share{Weight: rng.Int64N(4), Max: 1 + rng.Int64N(3), Tier: rng.IntN(3), Order: wfq.Order(rng.IntN(4))})
			case 2:
				ended, cancel := context.WithCancel(ctx)
				cancel()
				q.Drain(ended)
				q.Resume()
			case 3:
				for range q.Classes() {
				}
				q.Class("class 1").ExpectedWait(1)
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-changed
	q.Resize(3)
	if err := q.CheckInvariants(); err != nil {
		t.Error(err)
	}
	if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 || st.Free != 3 {
		t.Errorf("in the end: %+v", st)
	}
}

// TestQueue_Explored runs schedules of callers of two classes, one step at a time.
func TestQueue_Explored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		q := wfq.New(2)
		q.Set("a", wfq.Share{Max: 1})
		held := map[string]int64{}
		for _, c := range []struct {
			class string
			n     int64
		}{{"a", 1}, {"a", 1}, {"b", 2}, {"b", 1}} {
			gate := w.Gate(q.Class(c.class))
			w.Go(c.class, func(ctx context.Context) {
				p, err := gate.Acquire(ctx, c.n)
				if err != nil {
					w.Errorf("class %s: %v", c.class, err)
					return
				}
				held[c.class] += c.n
				w.Yield()
				held[c.class] -= c.n
				p.Release()
			})
		}
		w.Always("at most one of class a and two in all", func() bool { return held["a"] <= 1 && held["a"]+held["b"] <= 2 })
		w.Finally("everything is free", func() bool { return q.Stats().Free == 2 && q.CheckInvariants() == nil })
	}, sematest.Schedules(2000))
}
