package wfq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// TestOver_ChangesUnderRaces uses a queue over a semaphore, by callers that hold permits of
// another queue and so inherit tiers, while the capacities and phases of all three change.
// In the end everything is free again, and no waiter is left registered.
func TestOver_ChangesUnderRaces(t *testing.T) {
	t.Parallel()
	const rounds = 600
	observer := sema.Observe(sema.ObserverFunc(func(sema.Event) {}))
	gate := sema.New(2)
	over := wfq.Over(gate, 3, sema.MaxWaiters(8), sema.MaxWait(5*time.Millisecond), observer)
	lock := wfq.New(2, wfq.Ceiling(1))
	over.Set("shed", wfq.Share{Order: wfq.CoDel, Tier: -1})
	over.Set("raised", wfq.Share{Max: 1, MaxWaiters: 2})
	classes := []string{"shed", "raised", "a", "b"}
	var wg sync.WaitGroup
	for g := range 6 {
		rng := rand.New(rand.NewPCG(uint64(g), 3))
		wg.Go(func() {
			for range rounds {
				class := classes[rng.IntN(len(classes))]
				use := func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(1000))*time.Microsecond)
					defer cancel()
					acquire := over.Class(class).Acquire
					if rng.IntN(4) == 0 {
						acquire = over.Class(class).TryAcquire
					}
					p, err := acquire(ctx, 1+rng.Int64N(2))
					if err == nil && p.Weight() == 2 && rng.IntN(2) == 0 {
						first, rest, err := p.Split(1)
						if err != nil {
							t.Error(err)
						}
						first.Release()
						p = rest
					}
					p.Release()
					return err
				}
				if rng.IntN(2) == 0 {
					use(ctx)
				} else {
					sema.Do(wfq.With(ctx, fmt.Sprint("tier ", rng.IntN(3))), lock, 1, use)
				}
			}
		})
	}
	stop, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		rng := rand.New(rand.NewPCG(4, 4))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Microsecond):
			}
			switch rng.IntN(7) {
			case 0:
				gate.Resize(rng.Int64N(4))
			case 1:
				over.Resize(rng.Int64N(4))
			case 2:
				lock.Resize(1 + rng.Int64N(2))
			case 3:
				over.Drain(ended)
				over.Resume()
			case 4:
				gate.Drain(ended)
				gate.Resume()
			case 5:
				lock.Set(fmt.Sprint("tier ", rng.IntN(3)), wfq.Share{Tier: rng.IntN(3)})
			case 6:
				over.Set("raised", wfq.Share{Max: 1 + rng.Int64N(2), Tier: rng.IntN(2), Order: wfq.Order(rng.IntN(4))})
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-changed
	gate.Resize(2)
	for _, q := range []*wfq.Queue{over, lock} {
		q.Resize(3)
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
		if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 || st.Free != 3 || q.Dependents() != 0 {
			t.Errorf("in the end: %+v, %d dependents", st, q.Dependents())
		}
	}
	if st := gate.Stats(); st.InUse != 0 || st.Waiters != 0 {
		t.Errorf("behind the queue, in the end: %+v", st)
	}
}
