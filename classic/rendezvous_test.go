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

func meeting(ctx context.Context, r *classic.Rendezvous[int], v int) *call[int] {
	return start(func() (int, error) { return r.Meet(ctx, v) })
}

func TestRendezvous_PairsExchangeInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := classic.NewRendezvous[int](sema.Name("swap"))
		for i := range 3 {
			a := meeting(t.Context(), r, 2*i)
			a.wantWaiting(t)
			b := meeting(t.Context(), r, 2*i+1)
			if got := []int{a.want(t), b.want(t)}; got[0] != 2*i+1 || got[1] != 2*i {
				t.Errorf("exchanged %v", got)
			}
		}
		if _, ok := r.TryMeet(9); ok {
			t.Error("a try without a partner has met one")
		}
		a := meeting(t.Context(), r, 1)
		if got, want := r.String(), `rendezvous "swap": 3 pairs have met, 1 waiting`; got != want || fmt.Sprintf("%#v", r) != want || r.LogValue().String() != want {
			t.Errorf("%s, %#v and %s, want %s", got, r, r.LogValue(), want)
		}
		if v, ok := r.TryMeet(2); !ok || v != 1 || a.want(t) != 2 {
			t.Errorf("a try met %d, %v", v, ok)
		}
		if st := r.Stats(); st.Acquired != 8 || st.Waited != 4 || st.Rejected != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRendezvous_ACallerThatGivesUpMeetsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := classic.NewRendezvous[int](sema.MaxWait(time.Second))
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := meeting(ctx, r, 1)
		cancel(errCause)
		gone.wantErr(t, errCause)
		if _, err := r.Meet(ctx, 1); err != errCause {
			t.Errorf("a context that has ended: %v", err)
		}
		late := meeting(t.Context(), r, 2)
		late.wantWaiting(t) // did not meet the one that is gone
		time.Sleep(time.Second)
		late.wantErr(t, sema.ErrTimeout)
		_, err := r.Meet(noContext, 1)
		wantErr(t, err, sema.ErrInvalid)
		a := meeting(t.Context(), r, 3)
		r.Close()
		r.Close()
		a.wantErr(t, sema.ErrClosed)
		_, err = r.Meet(t.Context(), 4)
		wantErr(t, err, sema.ErrClosed)
		none := classic.NewRendezvous[int](sema.MaxWaiters(0))
		_, err = none.Meet(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		if st := r.Stats(); st.Cancelled != 1 || st.TimedOut != 1 || st.Rejected != 2 || st.Acquired != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRendezvous_ReportsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := classic.NewRendezvous[int](sema.Observe(&j))
		ctx, cancel := context.WithCancel(t.Context())
		a := meeting(ctx, r, 1)
		j.want(t, " queued")
		cancel()
		a.wantErr(t, context.Canceled)
		j.want(t, " cancelled")
		a = meeting(t.Context(), r, 1)
		j.want(t, " queued")
		r.TryMeet(2)
		a.want(t)
		j.want(t, " acquired", " acquired")
		r.Close()
		r.TryMeet(3)
		j.want(t, " closed", " rejected")
	})
}

// TestRendezvous_Explored has goroutines of which some give up: two that
// meet have each the value of the other.
func TestRendezvous_Explored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		r := classic.NewRendezvous[int]()
		partner := map[int]int{}
		const each, goroutines = 2, 4
		for i := range goroutines {
			w.Go(fmt.Sprint("goroutine ", i), func(ctx context.Context) {
				for k := range each {
					v := each*i + k
					limited, cancel := context.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
					other, err := r.Meet(limited, v)
					cancel()
					w.Yield()
					if err == nil {
						partner[v] = other
					}
				}
			})
		}
		w.Finally("partners agree", func() bool {
			for v, other := range partner {
				if back, met := partner[other]; !met || back != v || other/each == v/each {
					return false
				}
			}
			return r.Stats().Waiters == 0
		})
	}, sematest.Slow(2*time.Millisecond))
}

// TestRendezvous_AgreesUnderStress races meetings and cancels outside of a bubble.
func TestRendezvous_AgreesUnderStress(t *testing.T) {
	t.Parallel()
	r := classic.NewRendezvous[int]()
	const goroutines = 6
	var mu sync.Mutex
	partner := map[int]int{}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range stressRounds {
				v := g*stressRounds + i
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				other, err := r.Meet(ctx, v)
				cancel()
				if err == nil {
					mu.Lock()
					partner[v] = other
					mu.Unlock()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for v, other := range partner {
		if partner[other] != v {
			t.Fatalf("%d met %d, which met %d", v, other, partner[other])
		}
	}
	if st := r.Stats(); st.Acquired != int64(len(partner)) || st.Waiters != 0 {
		t.Errorf("%+v, %d met", st, len(partner))
	}
}
