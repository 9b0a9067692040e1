package classic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

func arriving(ctx context.Context, b *classic.Barrier) *call[bool] {
	return start(func() (bool, error) { return b.Wait(ctx) })
}

func TestBarrier_PhasesStartTogetherAndOneWasLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := classic.NewBarrier(3, sema.Name("phases"))
		for range 4 {
			first, second := arriving(t.Context(), b), arriving(t.Context(), b)
			first.wantWaiting(t)
			second.wantWaiting(t)
			third := arriving(t.Context(), b)
			if first.want(t) || second.want(t) || !third.want(t) {
				t.Error("want the third party to be the last one, and no other")
			}
		}
		waiting := arriving(t.Context(), b)
		if got, want := b.String(), `barrier "phases": 1 of 3 parties waiting, 4 phases`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if st := b.Stats(); st.Acquired != 12 || st.Waited != 9 || st.Waiters != 1 || st.Free != 2 || b.Parties() != 3 {
			t.Errorf("%+v", st)
		}
		b.Close()
		b.Close()
		waiting.wantErr(t, sema.ErrClosed)
		_, err := b.Wait(t.Context())
		wantErr(t, err, sema.ErrClosed)
		if last, err := classic.NewBarrier(1).Wait(t.Context()); !last || err != nil {
			t.Errorf("the only party: %v, %v", last, err)
		}
	})
}

func TestBarrier_APartyThatGivesUpBreaksItForAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give func(b *classic.Barrier) error // one party gives up
		want error
		text string
	}{
		"cancelled": {func(b *classic.Barrier) error {
			ctx, cancel := context.WithCancelCause(context.Background())
			leaving := arriving(ctx, b)
			cancel(errCause)
			synctest.Wait()
			return leaving.err
		}, errCause, "a party gave up: cause"},
		"came with a context that had ended": {func(b *classic.Barrier) error {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errCause)
			_, err := b.Wait(ctx)
			return err
		}, errCause, "a party gave up: cause"},
		"Break": {func(b *classic.Barrier) error { b.Break(); return classic.ErrBroken }, classic.ErrBroken, "Break was called"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := classic.NewBarrier(4, sema.Name("phases"))
				others := []*call[bool]{arriving(t.Context(), b), arriving(t.Context(), b)}
				wantErr(t, c.give(b), c.want)
				for _, o := range others {
					o.wantErr(t, classic.ErrBroken)
					if !strings.Contains(o.err.Error(), `sema: "phases": wait: barrier broken: `+c.text) {
						t.Error(o.err)
					}
				}
				if sema.Reason(others[0].err) != "broken" || sema.Hint(others[0].err) == "" || !b.Broken() {
					t.Errorf("reason %q, hint %q", sema.Reason(others[0].err), sema.Hint(others[0].err))
				}
				_, err := b.Wait(t.Context()) // until Reset
				wantErr(t, err, classic.ErrBroken)
				if !strings.Contains(b.String(), "broken") {
					t.Error(b)
				}
				b.Reset()
				if b.Broken() {
					t.Error("broken after Reset")
				}
				var all []*call[bool]
				for range 4 {
					all = append(all, arriving(t.Context(), b))
				}
				for i, a := range all {
					if a.want(t) != (i == 3) {
						t.Errorf("party %d after Reset", i)
					}
				}
			})
		})
	}
}

func TestBarrier_TimeoutAndResetBreakAPhase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := classic.NewBarrier(3, sema.MaxWait(time.Second))
		slow := arriving(t.Context(), b)
		time.Sleep(time.Second / 2)
		second := arriving(t.Context(), b)
		time.Sleep(time.Second / 2)
		slow.wantErr(t, sema.ErrTimeout)
		second.wantErr(t, classic.ErrBroken)
		if st := b.Stats(); st.TimedOut != 1 || st.Rejected != 1 || st.Waited != 2 || st.Waiters != 0 {
			t.Errorf("%+v", st)
		}
		b.Reset()
		waiting := arriving(t.Context(), b)
		b.Reset()
		waiting.wantErr(t, classic.ErrBroken)
		if b.Broken() {
			t.Error("broken after Reset")
		}
		waiting = arriving(t.Context(), b)
		_, err := b.Wait(noContext)
		wantErr(t, err, sema.ErrInvalid)
		waiting.wantWaiting(t) // an invalid call breaks nothing
		b.Break()
		waiting.wantErr(t, classic.ErrBroken)
		b.Close()
		_, err = b.Wait(t.Context())
		wantErr(t, err, sema.ErrClosed)
	})
}

func TestBarrier_ReportsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		b := classic.NewBarrier(2, sema.Observe(&j))
		first := arriving(t.Context(), b)
		j.want(t, " queued")
		b.Wait(t.Context())
		first.want(t)
		j.want(t, " acquired", " acquired")
		first = arriving(t.Context(), b)
		b.Break()
		first.wantErr(t, classic.ErrBroken)
		j.want(t, " queued", " rejected")
		b.Close()
		j.want(t, " closed")
	})
}

// TestBarrier_Explored has parties that may give up. In each phase all pass or none, and no
// party is ever more than one phase ahead.
func TestBarrier_Explored(t *testing.T) {
	t.Parallel()
	const parties, phases = 3, 3
	sematest.Explore(t, func(w *sematest.World) {
		b := classic.NewBarrier(parties)
		var passed [parties]int
		var lasts [phases]int
		w.Always("phases do not overlap", func() bool {
			return max(passed[0], passed[1], passed[2])-min(passed[0], passed[1], passed[2]) <= 1
		})
		w.Finally("all passed the same phases, each with one last party", func() bool {
			for phase := range phases {
				want := 0
				if phase < passed[0] {
					want = 1
				}
				if lasts[phase] != want {
					return false
				}
			}
			return passed[0] == passed[1] && passed[1] == passed[2] && (passed[0] == phases) != b.Broken()
		})
		for i := range parties {
			w.Go(fmt.Sprint("party ", i), func(ctx context.Context) {
				for phase := range phases {
					limited, cancel := context.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
					last, err := b.Wait(limited)
					cancel()
					if err != nil {
						if !errors.Is(err, classic.ErrBroken) && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
							w.Errorf("wait: %v", err)
						}
						return
					}
					passed[i]++ // before the next step: the others count at the same instant
					w.Yield()
					if last {
						lasts[phase]++
					}
				}
			})
		}
	}, sematest.Slow(time.Millisecond/2))
}

// TestBarrier_IsReusedWithoutResets runs many phases in real time: none starts before all have
// finished the one before.
func TestBarrier_IsReusedWithoutResets(t *testing.T) {
	t.Parallel()
	const parties = 4
	b := classic.NewBarrier(parties)
	var arrived, lasts atomic.Int64
	var wg sync.WaitGroup
	for range parties {
		wg.Go(func() {
			for phase := range int64(stressRounds) {
				arrived.Add(1)
				last, err := b.Wait(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if last {
					lasts.Add(1)
				}
				if n := arrived.Load(); n < parties*(phase+1) {
					t.Errorf("phase %d began after %d arrivals", phase, n)
				}
			}
		})
	}
	wg.Wait()
	if lasts.Load() != stressRounds {
		t.Errorf("%d last parties in %d phases", lasts.Load(), stressRounds)
	}
}

func TestNewBarrier_PanicsWithoutParties(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	classic.NewBarrier(0)
}
