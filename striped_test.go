package sema_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestStripedNeverExceedsItsCapacity(t *testing.T) {
	for _, capacity := range []int64{1, 3, 8, 100} {
		s := sema.NewStriped(capacity)
		var out, over atomic.Int64
		var working sync.WaitGroup
		for w := range 32 {
			working.Go(func() {
				for i := range 2000 {
					ctx, cancel := context.WithCancel(t.Context())
					if (i+w)%5 == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Microsecond)
					}
					p, err := s.Acquire(ctx, 1)
					cancel()
					if err != nil {
						continue
					}
					if out.Add(1) > capacity {
						over.Add(1)
					}
					out.Add(-1)
					p.Release()
					p.Release()
				}
			})
		}
		working.Wait()
		if n := over.Load(); n > 0 {
			t.Errorf("capacity %d exceeded %d times", capacity, n)
		}
		// Every permit is somewhere to be found: none was lost, none minted.
		var all []sema.Permit
		for {
			p, err := s.TryAcquire(t.Context(), 1)
			if err != nil {
				wantErr(t, err, sema.ErrFull)
				break
			}
			all = append(all, p)
		}
		if int64(len(all)) != capacity {
			t.Errorf("%d permits of %d", len(all), capacity)
		}
		for _, p := range all {
			p.Release()
		}
	}
}

func TestStripedReleaseGoesToAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.NewStriped(2)
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		first := acquiring(t.Context(), s, 1)
		synctest.Wait()
		second := acquiring(t.Context(), s, 1)
		synctest.Wait()
		if st := s.Stats(); st.Waiters != 2 || st.InUse != 2 || st.Free != 0 {
			t.Fatalf("%+v", st)
		}
		a.Release()
		synctest.Wait()
		if !settled(first) || settled(second) {
			t.Fatal("the release must go to the first in line")
		}
		(<-first).permit.Release()
		(<-second).permit.Release()
		b.Release()
		if st := s.Stats(); st.Waiters != 0 || st.InUse != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestStripedWaiterThatLeavesLosesNoPermit(t *testing.T) {
	s := sema.NewStriped(1)
	for range 2000 {
		held := mustAcquire(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquiring(ctx, s, 1)
		var racing sync.WaitGroup
		racing.Go(held.Release)
		racing.Go(cancel)
		racing.Wait()
		(<-waiting).permit.Release()
		mustAcquire(t, s, 1).Release()
	}
}

func TestStripedRefusesWhatItCannotDo(t *testing.T) {
	s := sema.NewStriped(4)
	_, err := s.Acquire(t.Context(), 2)
	wantErr(t, err, sema.ErrTooLarge)
	_, err = s.Acquire(t.Context(), -1)
	wantErr(t, err, sema.ErrInvalid)
	p := mustAcquire(t, s, 0)
	p.Release()
	one := mustAcquire(t, s, 1)
	if one.Lease() != nil || one.Lost() != nil || one.Err() != nil || !one.Held() {
		t.Error("a striped permit is a local one")
	}
	_, _, err = one.Split(1)
	wantErr(t, err, sema.ErrInvalid)
	wantPanic(t, "Forget", func() { sema.New(1).Forget(one) })
	one.Release()
	wantPanic(t, "NewStriped(0)", func() { sema.NewStriped(0) })
	wantPanic(t, "NewStriped(max)", func() { sema.NewStriped(sema.MaxCapacity + 1) })
	wantPanic(t, "zero Striped", func() { new(sema.Striped).TryAcquire(t.Context(), 2) })
	wantPanicText(t, "NewStriped", func() { new(sema.Striped).Acquire(t.Context(), 1) })
	wantPanicText(t, "NewStriped", func() { new(sema.Striped).TryAcquire(t.Context(), 1) })
}

// TestStripedRacingReleasesWakeAllTheyCan lets two releases into the same cell
// race two callers who are about to wait.
func TestStripedRacingReleasesWakeAllTheyCan(t *testing.T) {
	s := sema.NewStriped(2)
	for range *stressOps / 20 {
		a, b := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		x, y := acquiring(ctx, s, 1), acquiring(ctx, s, 1)
		go a.Release()
		b.Release()
		p, q := <-x, <-y // nobody releases before both have one
		cancel()
		if p.err != nil || q.err != nil {
			t.Fatalf("asleep beside a free permit: %v, %v", p.err, q.err)
		}
		p.permit.Release()
		q.permit.Release()
	}
}
