package sema_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

var stressOps = flag.Int("stress.ops", 200_000, "total number of racing operations in the stress tests")

// TestSemaphore_PermitsAreConservedUnderStress races acquires of all kinds, cancels,
// splits, double releases and resizes, in every order. With counters of its own it checks
// that the capacity is never exceeded and that all permits are returned.
func TestSemaphore_PermitsAreConservedUnderStress(t *testing.T) {
	configs := map[string][]sema.Option{
		"Fair":         {sema.Fair},
		"Unfair":       {sema.Unfair},
		"LIFO":         {sema.LIFO},
		"FairMaxWait":  {sema.MaxWait(20 * time.Microsecond)},
		"FairBounded":  {sema.MaxWaiters(5)},
		"Observed":     {sema.Observe(sema.ObserverFunc(func(sema.Event) {}))},
		"UnfairOneCtx": {sema.Unfair},
	}
	for name, opts := range configs {
		t.Run(name, func(t *testing.T) {
			stress(t, *stressOps/len(configs), opts)
		})
	}
}

func stress(t *testing.T, ops int, opts []sema.Option) {
	const workers, capacity = 16, 8
	s := sema.New(capacity, opts...)
	var used, over atomic.Int64
	shared, cancelShared := context.WithCancel(context.Background())
	defer cancelShared()
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range ops / workers {
				stressOnce(s, rng, shared, &used, &over)
			}
		})
	}
	stop := make(chan struct{})
	var resizing sync.WaitGroup
	resizing.Go(func() {
		rng := rand.New(rand.NewPCG(99, 1))
		for {
			select {
			case <-stop:
				s.Resize(capacity)
				return
			default:
				s.Resize(rng.Int64N(capacity) + 1) // never above the capacity that workers check
				time.Sleep(time.Microsecond)
			}
		}
	})
	working.Wait()
	close(stop)
	resizing.Wait()
	if n := over.Load(); n > 0 {
		t.Errorf("capacity exceeded %d times", n)
	}
	if st := s.Stats(); st.InUse != 0 || st.Free != capacity || st.Waiters != 0 || st.Debt != 0 {
		t.Errorf("at the end %+v", st)
	}
	all := mustAcquire(t, s, capacity)
	all.Release()
}

// stressOnce does one operation. used counts what this test knows to be held: it is
// raised after an acquire and lowered before a release. So it may lag, but can never
// exceed the capacity unless the semaphore granted too many permits.
func stressOnce(s *sema.Semaphore, rng *rand.Rand, shared context.Context, used, over *atomic.Int64) {
	n := rng.Int64N(4) + 1
	ctx, cancel := shared, context.CancelFunc(func() {})
	switch rng.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(shared, time.Duration(rng.IntN(50))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(shared)
		if rng.IntN(2) == 0 {
			go cancel()
		}
	}
	defer cancel()
	var p sema.Permit
	var err error
	switch rng.IntN(8) {
	case 0:
		p, err = s.TryAcquire(ctx, n)
	case 1:
		ticket := s.Request(n)
		select {
		case <-ticket.Ready():
			p, err = ticket.Permit()
		case <-time.After(time.Duration(rng.IntN(100)) * time.Microsecond):
			ticket.Cancel()
			return
		}
	default:
		p, err = s.Acquire(ctx, n)
	}
	if err != nil {
		return
	}
	if used.Add(n) > 8 {
		over.Add(1)
	}
	switch rng.IntN(6) {
	case 0:
		time.Sleep(time.Microsecond)
	case 1:
		if a, b, err := p.Split(1); err == nil {
			used.Add(-n)
			a.Release()
			b.Release()
		}
	}
	if p.Held() {
		used.Add(-n)
	}
	go p.Release()
	p.Release()
}

// TestSemaphore_NoPermitIsLostWhenCancelRacesGrant cancels at about the moment of the
// hand-off, with one shared context and with one for each waiter.
func TestSemaphore_NoPermitIsLostWhenCancelRacesGrant(t *testing.T) {
	for name, order := range map[string]sema.Option{"Fair": sema.Fair, "Unfair": sema.Unfair, "LIFO": sema.LIFO} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/shared=%v", name, shared), func(t *testing.T) {
				s := sema.New(1, order)
				for range max(100, *stressOps/2000) {
					raceCancelWithGrant(t, s, shared)
				}
			})
		}
	}
}

func raceCancelWithGrant(t *testing.T, s *sema.Semaphore, shared bool) {
	const waiters = 24 // enough for many followers of a watcher
	held := mustAcquire(t, s, 1)
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range waiters {
		own, cancelOwn := ctx, cancel
		if !shared {
			own, cancelOwn = context.WithCancel(ctx)
		}
		done.Go(func() {
			defer cancelOwn()
			p, err := s.Acquire(own, 1)
			if err == nil {
				p.Release()
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	// A waiter that stays: those that leave must not lose its wake-up.
	waiting := acquiring(context.Background(), s, 1)
	waitersReach(t, waiters+1, func() int { return s.Stats().Waiters })
	done.Go(held.Release)
	done.Go(func() {
		for range rand.IntN(2 * waiters) { // at some point of the queue
			runtime.Gosched()
		}
		cancel()
	})
	done.Wait()
	select {
	case r := <-waiting:
		r.permit.Release()
	case <-time.After(time.Minute):
		t.Fatal("a wake-up was lost")
	}
	wantStats(t, s, 0, 0)
}

// TestSemaphore_HandOffNeverLeavesAllWaitersAsleep passes one permit between goroutines. A
// lost wake-up leaves all of them queued although the permit is free.
func TestSemaphore_HandOffNeverLeavesAllWaitersAsleep(t *testing.T) {
	weighted, counter := sema.NewWeighted(1), sema.NewCounter(1, 1)
	pairs := map[string]func(ctx context.Context) error{
		"Weighted": func(ctx context.Context) error {
			err := weighted.Acquire(ctx, 1)
			if err == nil {
				weighted.Release(1)
			}
			return err
		},
		"Counter": func(ctx context.Context) error {
			err := counter.Wait(ctx, 1)
			if err == nil {
				err = counter.Post(1)
			}
			return err
		},
	}
	for name, g := range map[string]sema.Gate{
		"Fair": sema.New(1), "Unfair": sema.New(1, sema.Unfair), "LIFO": sema.New(1, sema.LIFO), "Striped": sema.NewStriped(1),
	} {
		pairs[name] = func(ctx context.Context) error {
			p, err := g.Acquire(ctx, 1)
			p.Release()
			return err
		}
	}
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asleep := time.AfterFunc(time.Minute, cancel) // a limit for a thousand pairs, since the total depends on the machine
			defer asleep.Stop()
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() {
					for i := range *stressOps / raceFactor {
						if err := pair(ctx); err != nil {
							t.Error("all waiters are asleep:", err)
							return
						}
						if i%1000 == 0 {
							asleep.Reset(time.Minute)
						}
					}
				})
			}
			workers.Wait()
		})
	}
}

// TestSemaphore_MicrosecondTimeoutStormEnds covers JDK-8386085: a storm of waits that time
// out in microseconds must not live-lock the queue.
func TestSemaphore_MicrosecondTimeoutStormEnds(t *testing.T) {
	s := sema.New(1, sema.MaxWait(time.Microsecond))
	held := mustAcquire(t, s, 1)
	var storm sync.WaitGroup
	for range 64 {
		storm.Go(func() {
			for range 200 {
				if p, err := s.Acquire(context.Background(), 1); err == nil {
					p.Release()
				} else if !errors.Is(err, sema.ErrTimeout) {
					t.Error(err)
				}
			}
		})
	}
	time.AfterFunc(5*time.Millisecond, held.Release)
	storm.Wait()
	waitersReach(t, 0, func() int { return int(s.Stats().InUse) })
}

// TestAcquireAll_PermitsAreConserved races AcquireAll over three semaphores with
// single acquires, cancels and resizes.
func TestAcquireAll_PermitsAreConserved(t *testing.T) {
	sems := []*sema.Semaphore{sema.New(4), sema.New(4, sema.Unfair), sema.New(4, sema.LIFO), sema.New(4)}
	used := make([]atomic.Int64, len(sems))
	var over atomic.Int64
	var racing sync.WaitGroup
	for w := range 16 {
		racing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for range *stressOps / 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(3) == 0 {
					go cancel()
				}
				var wants []sema.Want
				for _, i := range rng.Perm(len(sems))[:1+rng.IntN(3)] {
					wants = append(wants, sema.Want{Gate: sems[i], N: 1 + rng.Int64N(3)})
				}
				if p, err := sema.AcquireAll(ctx, wants...); err == nil {
					for _, w := range wants {
						for i := range sems {
							if w.Gate == sems[i] && used[i].Add(w.N) > 4 {
								over.Add(1)
							}
						}
					}
					for _, w := range wants {
						for i := range sems {
							if w.Gate == sems[i] {
								used[i].Add(-w.N)
							}
						}
					}
					p.Release()
				}
				cancel()
			}
		})
	}
	racing.Wait()
	if n := over.Load(); n > 0 {
		t.Errorf("capacity exceeded %d times", n)
	}
	for _, s := range sems {
		wantStats(t, s, 0, 0)
	}
}
