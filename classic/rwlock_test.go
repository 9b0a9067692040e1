package classic_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/internal/seal"
	"github.com/sema-go/sema/sematest"
)

var preferences = []classic.Preference{classic.FairRW, classic.PreferReaders, classic.PreferWriters}

func TestRWLock_GatesConform(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		for name, opts := range map[string][]classic.RWOption{
			"plain":    nil,
			"observed": {sema.Observe(&journal{}), sema.Diagnose(sema.DiagnoseFull), sema.Name("conforms")},
		} {
			t.Run(fmt.Sprintf("%v %s readers", p, name), func(t *testing.T) {
				t.Parallel()
				sematest.Check(t, sematest.Traits{FIFO: true, Weights: true, Split: true}, func(t *testing.T, capacity int64) sema.Gate {
					return classic.NewRWLock(p, append(slices.Clone(opts), classic.MaxReaders(capacity))...).Reader()
				})
			})
			t.Run(fmt.Sprintf("%v %s writers", p, name), func(t *testing.T) {
				t.Parallel()
				sematest.Check(t, sematest.Traits{FIFO: true, Binary: true}, func(t *testing.T, _ int64) sema.Gate {
					return classic.NewRWLock(p, opts...).Writer()
				})
			})
		}
	}
}

func TestRWLock_ReadersShareAndAWriterIsAlone(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		l := classic.NewRWLock(p)
		a, b := mustAcquire(t, l.Reader(), 1), mustAcquire(t, l.Reader(), 5)
		if _, err := l.Writer().TryAcquire(t.Context(), 1); err == nil {
			t.Fatalf("%v: a writer beside readers", p)
		}
		a.Release()
		if _, err := l.Writer().TryAcquire(t.Context(), 1); err == nil {
			t.Fatalf("%v: a writer beside a reader", p)
		}
		b.Release()
		w := mustAcquire(t, l.Writer(), 1)
		for name, g := range map[string]sema.Gate{"reader": l.Reader(), "writer": l.Writer()} {
			if _, err := g.TryAcquire(t.Context(), 1); err == nil {
				t.Fatalf("%v: a %s beside a writer", p, name)
			}
		}
		w.Release()
		mustAcquire(t, l.Reader(), 1).Release()
	}
}

// TestRWLock_FairServesInOrderOfArrival has the queue R W R R W R behind a writer.
func TestRWLock_FairServesInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := classic.NewRWLock(classic.FairRW)
		ctx := t.Context()
		held := mustAcquire(t, l.Writer(), 1)
		r1 := acquiring(ctx, l.Reader(), 1)
		w1 := acquiring(ctx, l.Writer(), 1)
		r2, r3 := acquiring(ctx, l.Reader(), 1), acquiring(ctx, l.Reader(), 1)
		w2 := acquiring(ctx, l.Writer(), 1)
		r4 := acquiring(ctx, l.Reader(), 1)
		held.Release()
		first := r1.want(t)
		for _, c := range []*call[sema.Permit]{w1, r2, r3, w2, r4} {
			c.wantWaiting(t)
		}
		first.Release()
		p := w1.want(t)
		r2.wantWaiting(t)
		p.Release()
		a, b := r2.want(t), r3.want(t) // neighbours share
		w2.wantWaiting(t)
		r4.wantWaiting(t)
		a.Release()
		b.Release()
		p = w2.want(t)
		r4.wantWaiting(t)
		p.Release()
		r4.want(t).Release()
	})
}

// overlap keeps readers coming, so that one always holds the lock, until the writer has it
// or rounds have passed. It reports whether the writer got it.
func overlap(t *testing.T, p classic.Preference, rounds int) bool {
	l := classic.NewRWLock(p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader := mustAcquire(t, l.Reader(), 1)
	writer := acquiring(ctx, l.Writer(), 1)
	for range rounds {
		next := acquiring(ctx, l.Reader(), 1)
		reader.Release()
		synctest.Wait()
		if writer.ended.Load() {
			writer.want(t).Release()
			next.want(t).Release()
			return true
		}
		reader = next.want(t)
	}
	cancel()
	writer.wantErr(t, context.Canceled)
	reader.Release()
	return false
}

// overlapWriters does the same with writers that always follow each other, and a reader.
func overlapWriters(t *testing.T, p classic.Preference, rounds int) bool {
	l := classic.NewRWLock(p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writer := mustAcquire(t, l.Writer(), 1)
	reader := acquiring(ctx, l.Reader(), 1)
	for range rounds {
		next := acquiring(ctx, l.Writer(), 1)
		writer.Release()
		synctest.Wait()
		if reader.ended.Load() {
			reader.want(t).Release()
			next.want(t).Release()
			return true
		}
		writer = next.want(t)
	}
	cancel()
	reader.wantErr(t, context.Canceled)
	writer.Release()
	return false
}

func TestRWLock_StarvesOnlyWhereThePreferenceAllowsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preference             classic.Preference
		writerRuns, readerRuns bool
	}{
		{classic.FairRW, true, true},
		{classic.PreferReaders, false, true},
		{classic.PreferWriters, true, false},
	} {
		t.Run(c.preference.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if runs := overlap(t, c.preference, 100); runs != c.writerRuns {
					t.Errorf("a writer among overlapping readers runs: %v, want %v", runs, c.writerRuns)
				}
				if runs := overlapWriters(t, c.preference, 100); runs != c.readerRuns {
					t.Errorf("a reader among overlapping writers runs: %v, want %v", runs, c.readerRuns)
				}
			})
		})
	}
}

// TestRWLock_AWriterThatGivesUpDelaysNoReader: readers behind a waiting writer are served when
// its context ends, when MaxWait passes, and when both race with a release.
func TestRWLock_AWriterThatGivesUpDelaysNoReader(t *testing.T) {
	t.Parallel()
	for _, p := range []classic.Preference{classic.FairRW, classic.PreferWriters} {
		synctest.Test(t, func(t *testing.T) {
			l := classic.NewRWLock(p)
			held := mustAcquire(t, l.Reader(), 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			w := acquiring(ctx, l.Writer(), 1)
			r1, r2 := acquiring(t.Context(), l.Reader(), 1), acquiring(t.Context(), l.Reader(), 3)
			r1.wantWaiting(t)
			cancel(errCause)
			w.wantErr(t, errCause)
			r1.want(t).Release()
			r2.want(t).Release()
			held.Release()
			if st := l.Stats(); st.Writers.Cancelled != 1 || st.Writers.Waiters != 0 || st.Readers.InUse != 0 {
				t.Errorf("%+v", st)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			l := classic.NewRWLock(p, sema.MaxWait(time.Second))
			held := mustAcquire(t, l.Reader(), 1)
			w := acquiring(t.Context(), l.Writer(), 1)
			time.Sleep(time.Second / 2)
			r := acquiring(t.Context(), l.Reader(), 1)
			time.Sleep(time.Second/2 + 1)
			w.wantErr(t, sema.ErrTimeout)
			r.want(t).Release()
			held.Release()
		})
	}
}

// TestRWLock_ACancelAtTheInstantOfTheGrantKeepsNothing ends the context of a waiter right after
// it was served, mostly before it runs again.
func TestRWLock_ACancelAtTheInstantOfTheGrantKeepsNothing(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		synctest.Test(t, func(t *testing.T) {
			l := classic.NewRWLock(p)
			for range 100 {
				for _, gate := range []sema.Gate{l.Reader(), l.Writer()} {
					held := mustAcquire(t, l.Writer(), 1)
					ctx, cancel := context.WithCancelCause(t.Context())
					served := acquiring(ctx, gate, 1)
					held.Release()
					cancel(errCause)
					synctest.Wait()
					if served.err != nil {
						served.wantErr(t, errCause)
					} else {
						served.want(t).Release()
					}
					mustAcquire(t, l.Writer(), 1).Release() // the lock is free
				}
			}
			if st := l.Stats(); st.Readers.Cancelled == 0 || st.Writers.Cancelled == 0 {
				t.Logf("no cancel came in time: %+v", st)
			}
		})
	}
}

// TestRWLock_AHeavyReaderThatGivesUpDelaysNone does the same for a reader that needs more than
// MaxReaders leaves.
func TestRWLock_AHeavyReaderThatGivesUpDelaysNone(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		synctest.Test(t, func(t *testing.T) {
			l := classic.NewRWLock(p, classic.MaxReaders(4))
			held := mustAcquire(t, l.Reader(), 2)
			ctx, cancel := context.WithCancel(t.Context())
			heavy := acquiring(ctx, l.Reader(), 4)
			light := acquiring(t.Context(), l.Reader(), 2)
			light.wantWaiting(t)
			cancel()
			heavy.wantErr(t, context.Canceled)
			light.want(t).Release()
			held.Release()
			mustAcquire(t, l.Writer(), 1).Release()
		})
	}
}

func TestRWLock_BoundsWaitersOfEachSide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := classic.NewRWLock(classic.FairRW, sema.MaxWaiters(1), sema.Name("config"))
		held := mustAcquire(t, l.Writer(), 1)
		r, w := acquiring(t.Context(), l.Reader(), 1), acquiring(t.Context(), l.Writer(), 1)
		acquiring(t.Context(), l.Reader(), 1).wantErr(t, sema.ErrQueueFull)
		acquiring(t.Context(), l.Writer(), 1).wantErr(t, sema.ErrQueueFull)
		held.Release()
		r.want(t).Release()
		w.want(t).Release()
		none := classic.NewRWLock(classic.FairRW, sema.MaxWaiters(0))
		held = mustAcquire(t, none.Reader(), 1)
		_, err := none.Writer().Acquire(t.Context(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		held.Release()
		if st := none.Stats().Writers; st.Rejected != 1 || st.Waited != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRWLock_CloseRejectsWaitersAndKeepsPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := classic.NewRWLock(classic.FairRW, sema.Name("config"), sema.Observe(&j))
		held := mustAcquire(t, l.Reader(), 1)
		w, r := acquiring(t.Context(), l.Writer(), 1), acquiring(t.Context(), l.Reader(), 1)
		if got, want := l.String(), `lock "config": FairRW, held by readers (1), 1 readers and 1 writers waiting`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		l.Close()
		l.Close()
		w.wantErr(t, sema.ErrClosed)
		r.wantErr(t, sema.ErrClosed)
		for _, g := range []sema.Gate{l.Reader(), l.Writer()} {
			for _, n := range []int64{0, 1} {
				_, err := g.TryAcquire(t.Context(), n)
				wantErr(t, err, sema.ErrClosed)
			}
		}
		if !held.Held() {
			t.Error("a permit ended with Close")
		}
		held.Release()
		if got, want := l.String(), `lock "config": FairRW, free, 0 readers and 0 writers waiting, closed`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if n := len(j.find(sema.EventClosed)); n != 2 {
			t.Errorf("%d closed events, want one for each side", n)
		}
	})
}

func TestNewRWLock_PanicsOnWhatIsNotAnOption(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"preference":  func() { classic.NewRWLock(3) },
		"max readers": func() { classic.MaxReaders(0) },
		"a foreign option": func() {
			classic.NewRWLock(classic.FairRW, foreignOption{})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	if got := fmt.Sprint(classic.FairRW, classic.PreferReaders, classic.PreferWriters, classic.Preference(9)); got != "FairRW PreferReaders PreferWriters Preference(9)" {
		t.Error(got)
	}
}

// A foreignOption is an option of another package.
type foreignOption struct{}

// SharedOption implements [classic.RWOption].
func (foreignOption) SharedOption(seal.Key) {}
