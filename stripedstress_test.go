package sema_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// TestStriped_GrantsNothingOnceClosed races releases with Close and Drain. An acquire that
// starts after Close must not find what the releases put into the cells.
func TestStriped_GrantsNothingOnceClosed(t *testing.T) {
	const holders = 4
	for i := range *stressOps / 100 {
		s := sema.NewStriped(holders)
		var held [holders]sema.Permit
		for k := range held {
			held[k] = mustAcquire(t, s, 1)
		}
		end, want := func() { s.Close() }, sema.ErrClosed
		if i%2 == 0 {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			end, want = func() { s.Drain(ended) }, sema.ErrDraining
		}
		var racing sync.WaitGroup
		for _, p := range held {
			racing.Go(p.Release)
		}
		racing.Go(func() {
			end()
			for range 20 {
				p, err := s.TryAcquire(t.Context(), 1)
				p.Release()
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		})
		racing.Wait()
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		wantErr(t, s.WaitIdle(limited), nil) // every release has reached the queue
		cancel()
		if st := s.Stats(); st.InUse != 0 || st.Free != holders {
			t.Fatalf("%+v", st)
		}
	}
}

// TestStriped_NoReleaseIsLeftInAShutCell shuts the cells while a goroutine acquires and
// releases all the time. A permit left in a shut cell would count as held for ever.
func TestStriped_NoReleaseIsLeftInAShutCell(t *testing.T) {
	for range *stressOps / 100 / raceFactor {
		s := sema.NewStriped(2)
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			p, err := s.Acquire(t.Context(), 1)
			close(begun)
			for err == nil {
				p.Release()
				p, err = s.Acquire(t.Context(), 1)
			}
			ended <- err
		}()
		<-begun
		s.Close()
		wantErr(t, <-ended, sema.ErrClosed)
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		wantErr(t, s.WaitIdle(limited), nil)
		cancel()
	}
}

// TestStriped_MovesHideNoPermit checks that all permits are found while they move between
// the cells and the queue, as they do in a Resize to the same capacity.
func TestStriped_MovesHideNoPermit(t *testing.T) {
	const capacity = 8
	for name, check := range map[string]func(s *sema.Striped) error{
		"TryAcquire": func(s *sema.Striped) error {
			p, err := s.TryAcquire(t.Context(), 1)
			p.Release()
			return err
		},
		"Acquire": func(s *sema.Striped) error {
			p, err := s.Acquire(t.Context(), 1)
			p.Release()
			return err
		},
		"Stats": func(s *sema.Striped) error {
			if st := s.Stats(); st.Free != capacity || st.Capacity != capacity || st.InUse != 0 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		},
	} {
		for kind, opts := range map[string][]sema.SharedOption{"": nil, ", observed": {sema.Observe(sema.ObserverFunc(func(sema.Event) {}))}} {
			t.Run(name+kind, func(t *testing.T) {
				s := sema.NewStriped(capacity, append(opts, sema.MaxWaiters(0))...)
				moved := make(chan struct{})
				go func() {
					defer close(moved)
					for range 5 * *stressOps / raceFactor {
						s.Resize(capacity)
					}
				}()
				for {
					if err := check(s); err != nil {
						t.Error(err)
						<-moved
						return
					}
					select {
					case <-moved:
						return
					default:
					}
				}
			})
		}
	}
}

// TestStriped_LifecycleConservesPermits races acquires of all kinds, cancels and double
// releases with every lifecycle method. Its own count of held permits must never exceed
// the largest capacity, and all permits must be free at the end.
func TestStriped_LifecycleConservesPermits(t *testing.T) {
	const workers, most = 12, 8
	for name, opts := range map[string][]sema.SharedOption{
		"plain":    nil,
		"maxwait":  {sema.MaxWait(20 * time.Microsecond)},
		"bounded":  {sema.MaxWaiters(3)},
		"observed": {sema.Observe(sema.ObserverFunc(func(sema.Event) {}))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sema.NewStriped(most, opts...)
			var used, over atomic.Int64
			var working sync.WaitGroup
			for w := range workers {
				working.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 3))
					for range *stressOps / 4 / workers {
						stripedOnce(s, rng, most, &used, &over)
					}
				})
			}
			stop := make(chan struct{})
			var operating sync.WaitGroup
			for w := range 2 {
				operating.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 4))
					for {
						select {
						case <-stop:
							return
						default:
							operate(s, rng, most)
						}
					}
				})
			}
			working.Wait()
			close(stop)
			operating.Wait()
			if n := over.Load(); n > 0 {
				t.Errorf("capacity exceeded %d times", n)
			}
			s.Resume()
			s.Resize(most)
			wantErr(t, s.WaitIdle(t.Context()), nil)
			if st := s.Stats(); st.InUse != 0 || st.Free != most || st.Debt != 0 || st.Waiters != 0 || st.Draining {
				t.Errorf("at the end %+v", st)
			}
			for i := range most + 1 {
				_, err := s.TryAcquire(t.Context(), 1) //semavet:ignore counts what can be acquired
				if i < most {
					wantErr(t, err, nil)
				} else {
					wantErr(t, err, sema.ErrFull)
				}
			}
		})
	}
}

// stripedOnce does one operation of a worker. used is a lower bound of the held permits.
func stripedOnce(s *sema.Striped, rng *rand.Rand, most int64, used, over *atomic.Int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	switch rng.IntN(4) {
	case 0:
		go cancel()
	case 1:
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rng.IntN(50))*time.Microsecond)
	}
	defer cancel()
	acquire := s.Acquire
	if rng.IntN(4) == 0 {
		acquire = s.TryAcquire
	}
	p, err := acquire(ctx, 1)
	if err != nil {
		return
	}
	if used.Add(1) > most {
		over.Add(1)
	}
	if rng.IntN(4) == 0 {
		runtime.Gosched()
	}
	used.Add(-1)
	if rng.IntN(4) == 0 {
		go p.Release()
	}
	p.Release()
}

// operate calls one lifecycle method, and then Resume.
func operate(s *sema.Striped, rng *rand.Rand, most int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(50))*time.Microsecond)
	defer cancel()
	switch rng.IntN(5) {
	case 0, 1:
		s.Resize(rng.Int64N(most + 1))
	case 2:
		s.Drain(ctx)
	case 3:
		s.Resume()
	case 4:
		s.WaitIdle(ctx)
	}
	for range rng.IntN(4) {
		runtime.Gosched()
	}
	s.Resume()
}

// TestStriped_LifecycleLosesNoWakeUp has goroutines wait without a limit while the
// semaphore is paused and resumed all the time. A lost wake-up leaves them waiting
// although permits are free.
func TestStriped_LifecycleLosesNoWakeUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asleep := time.AfterFunc(time.Minute, cancel)
	defer asleep.Stop()
	for round := range *stressOps / 20 / raceFactor {
		s := sema.NewStriped(0)
		ended, end := context.WithCancel(ctx)
		end()
		var racing sync.WaitGroup
		for range 2 {
			racing.Go(func() {
				p, err := s.Acquire(ctx, 1)
				for errors.Is(err, sema.ErrDraining) {
					runtime.Gosched()
					p, err = s.Acquire(ctx, 1)
				}
				if err != nil {
					t.Error("not woken although a permit is free:", err)
				}
				p.Release()
			})
		}
		racing.Go(func() {
			if round%2 == 0 {
				s.Drain(ended)
				s.Resize(2)
				s.Resume()
			} else {
				s.Resize(1)
				s.WaitIdle(ended)
			}
		})
		racing.Wait()
		if t.Failed() {
			return
		}
		asleep.Reset(time.Minute)
	}
}
