package sema_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A samplingJournal is a Sampler that records events.
type samplingJournal struct {
	journal
	every int
}

func (j *samplingJournal) SampleEvery() int { return j.every }

// counts returns the number of recorded events by kind.
func (j *samplingJournal) counts() map[sema.EventKind]int {
	counts := map[sema.EventKind]int{}
	for _, e := range j.take() {
		counts[e.Kind]++
	}
	return counts
}

func TestSampler_ReceivesASampleOfWhatDidNotWait(t *testing.T) {
	t.Parallel()
	const pairs, every = 6400, 64
	j := &samplingJournal{every: every}
	for name, gate := range map[string]sema.Gate{"Semaphore": sema.New(1, sema.Observe(j)), "wfq": wfq.New(1, sema.Observe(j))} {
		for range pairs {
			p := mustAcquire(t, gate, 1)
			p.Release()
		}
		got := j.counts()
		for _, kind := range []sema.EventKind{sema.EventAcquired, sema.EventReleased} {
			if n := got[kind]; n < pairs/every*9/10 || n > pairs/every*11/10 {
				t.Errorf("%s: %d events %q for %d pairs, want about %d", name, n, kind, pairs, pairs/every)
			}
			delete(got, kind)
		}
		if len(got) > 0 {
			t.Errorf("%s: other events: %v", name, got)
		}
	}
}

func TestSampler_SamplesAlternatingHoldsFairly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &samplingJournal{every: 64}
		s := sema.New(1, sema.Observe(j))
		const short, long = time.Millisecond, 3 * time.Millisecond
		for i := range 12800 {
			p := mustAcquire(t, s, 1)
			time.Sleep([]time.Duration{short, long}[i%2])
			p.Release()
		}
		seen := map[time.Duration]int{}
		for _, e := range j.take() {
			if e.Kind == sema.EventReleased {
				seen[e.Hold]++
			}
		}
		if len(seen) != 2 || math.Abs(float64(seen[short]-seen[long])) > 20 {
			t.Errorf("holds %v, want about 100 of each", seen)
		}
	})
}

func TestSampler_ReceivesEveryWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &samplingJournal{every: math.MaxInt}
		s := sema.New(1, sema.Observe(j), sema.MaxWait(time.Minute))
		mustAcquire(t, s, 1).Release() // the first permit of a gate is sampled
		wantKinds(t, &j.journal, sema.EventAcquired, sema.EventReleased)
		for range 10 {
			held := mustAcquire(t, s, 1)
			time.AfterFunc(time.Second, held.Release)
			mustAcquire(t, s, 1).Release()
			events := wantKinds(t, &j.journal, sema.EventQueued, sema.EventAcquired)
			if wait := events[1].Wait; wait != time.Second {
				t.Fatalf("a wait of %v was reported, want 1s", wait)
			}
		}
		held := mustAcquire(t, s, 1)
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrTimeout)
		_, err = s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		held.Release()
		wantKinds(t, &j.journal, sema.EventQueued, sema.EventTimedOut, sema.EventRejected)
	})
}

func TestSampler_PartsOfASplitHaveTheHoldOfTheWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &samplingJournal{every: 8}
		s := sema.New(2, sema.Observe(j))
		for range 1000 {
			p := mustAcquire(t, s, 2)
			time.Sleep(time.Second)
			a, b, err := p.Split(1)
			if err != nil {
				t.Fatal(err)
			}
			a.Release()
			b.Release()
		}
		released := 0
		for _, e := range j.take() {
			if e.Kind == sema.EventReleased {
				released++
				if e.Hold != time.Second {
					t.Fatalf("hold of %v, want 1s", e.Hold)
				}
			}
		}
		if released == 0 {
			t.Error("no release was reported")
		}
	})
}

func TestSampler_WithAnotherObserverReceivesAllEvents(t *testing.T) {
	t.Parallel()
	j, all := &samplingJournal{every: math.MaxInt}, &journal{}
	s := sema.New(1, sema.Observe(j), sema.Observe(all))
	for range 100 {
		mustAcquire(t, s, 1).Release()
	}
	if got := j.counts(); got[sema.EventAcquired] != 100 || got[sema.EventReleased] != 100 || got[sema.EventExhausted] != 100 {
		t.Errorf("events %v, want all of 100 pairs", got)
	}
}

func TestSampler_OfACounterReceivesWaitsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &samplingJournal{every: 1}
		c := sema.NewCounter(0, 10, sema.Observe(j))
		go func() {
			time.Sleep(time.Second)
			c.Post(2)
		}()
		for range 2 {
			if err := c.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		wantKinds(t, &j.journal, sema.EventQueued, sema.EventAcquired)
	})
}

// A waitJournal records the ends of waits, with the value of the caller's context.
type waitJournal struct {
	samplingJournal
	ended   []sema.Event
	callers []any
}

type callerKey struct{}

func (j *waitJournal) ObserveWait(ctx context.Context, queued sema.Event) func(sema.Event) {
	return func(e sema.Event) {
		e.Waiters = queued.Waiters
		j.ended, j.callers = append(j.ended, e), append(j.callers, ctx.Value(callerKey{}))
	}
}

func TestWaitObserver_FollowsEachWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &waitJournal{}, &waitJournal{}
		s := sema.New(1, sema.Observe(a), sema.Observe(b), sema.MaxWait(time.Minute))
		held := mustAcquire(t, s, 1)
		ctx := context.WithValue(t.Context(), callerKey{}, "batch")
		time.AfterFunc(time.Second, held.Release)
		permit := mustAcquire(t, s, 1)
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, sema.ErrTimeout)
		permit.Release()
		mustAcquire(t, s, 1).Release() // no wait
		for _, j := range []*waitJournal{a, b} {
			if len(j.ended) != 2 || j.ended[0].Kind != sema.EventAcquired || j.ended[0].Wait != time.Second || j.ended[0].Waiters != 1 ||
				j.ended[1].Kind != sema.EventTimedOut || j.callers[1] != "batch" {
				t.Errorf("waits %+v of %v", j.ended, j.callers)
			}
		}
	})
}

type quietSampler struct{}

func (quietSampler) Observe(sema.Event) {}
func (quietSampler) SampleEvery() int   { return 64 }

func BenchmarkSampler(b *testing.B) {
	for name, s := range map[string]*sema.Semaphore{"none": sema.New(1), "sampler": sema.New(1, sema.Observe(quietSampler{}))} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			for b.Loop() {
				p, _ := s.Acquire(ctx, 1)
				p.Release()
			}
		})
	}
}
