package classic_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

func TestBuffer_CloseRejectsProducersAndLetsItemsBeTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := filled(t, 2, sema.Name("jobs"))
		producer := putting(t.Context(), b, 9)
		wantErr(t, b.Close(), nil)
		wantErr(t, b.Close(), nil)
		producer.wantErr(t, sema.ErrClosed)
		wantErr(t, b.Put(t.Context(), 9), sema.ErrClosed)
		if b.TryPut(9) {
			t.Error("a try added an item to a closed buffer")
		}
		n, err := b.PutAll(t.Context(), []int{9})
		if n != 0 {
			t.Error("a batch was added to a closed buffer")
		}
		wantErr(t, err, sema.ErrClosed)
		if got, want := b.String(), `buffer "jobs": 2 of 2 items, 0 producers and 0 consumers waiting, closed`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for i := range 2 {
			v, err := b.Take(t.Context())
			if v != i || err != nil {
				t.Errorf("item %d, %v, want %d", v, err, i)
			}
		}
		_, err = b.Take(t.Context())
		wantErr(t, err, sema.ErrClosed)
		_, err = b.TakeUpTo(t.Context(), make([]int, 1))
		wantErr(t, err, sema.ErrClosed)

		empty := classic.NewBuffer[int](1)
		consumers := []*call[int]{taking(t.Context(), empty), taking(t.Context(), empty)}
		empty.Close()
		for _, c := range consumers {
			c.wantErr(t, sema.ErrClosed)
		}
		if st := empty.Stats().Takes; st.Rejected != 2 || st.Waiters != 0 || !st.Closed {
			t.Errorf("%+v", st)
		}
	})
}

func TestBuffer_AllEndsWhenItIsClosedAndEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		collect := func(ctx context.Context, b *classic.Buffer[int]) *call[[]int] {
			return start(func() (got []int, err error) {
				for v, err := range b.All(ctx) {
					if err != nil {
						return got, err
					}
					got = append(got, v)
				}
				return got, nil
			})
		}
		b := filled(t, 3)
		all := collect(t.Context(), b)
		wantErr(t, b.Put(t.Context(), 3), nil)
		b.Close()
		if got := all.want(t); !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("items %v", got)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		open := classic.NewBuffer[int](1)
		all = collect(ctx, open)
		cancel(sema.ErrClosed) // a cause that looks like the end
		all.wantErr(t, sema.ErrClosed)
		collect(noContext, open).wantErr(t, sema.ErrInvalid)
		collect(t.Context(), classic.NewBuffer[int](1, sema.MaxWaiters(0))).wantErr(t, sema.ErrQueueFull)

		b = filled(t, 3)
		for v, err := range b.All(t.Context()) {
			if v != 0 || err != nil {
				t.Error(v, err)
			}
			break
		}
		if b.Len() != 2 {
			t.Errorf("%d items are left after a break, want 2", b.Len())
		}
	})
}

func TestBuffer_BoundsWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := filled(t, 1, sema.Name("jobs"), sema.MaxWait(time.Second), sema.MaxWaiters(2))
		begin := time.Now()
		first, second := putting(t.Context(), b, 1), putting(t.Context(), b, 2)
		third := putting(t.Context(), b, 3)
		third.wantErr(t, sema.ErrQueueFull)
		time.Sleep(time.Second)
		first.wantErr(t, sema.ErrTimeout)
		second.wantErr(t, sema.ErrTimeout)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		if text := first.err.Error(); !strings.HasPrefix(text, `sema: "jobs": put: waited too long: 1s (1 in use, `) {
			t.Error(text)
		}
		st := b.Stats().Puts
		if st.Waited != 2 || st.TimedOut != 2 || st.Rejected != 2 || st.Acquired != 1 { // one TryPut of filled
			t.Errorf("%+v", st)
		}
		none := filled(t, 1, sema.MaxWaiters(0))
		wantErr(t, none.Put(t.Context(), 1), sema.ErrQueueFull)
		if _, err := none.Take(t.Context()); err != nil {
			t.Errorf("what is there was not taken: %v", err)
		}
		_, err := none.Take(t.Context())
		wantErr(t, err, sema.ErrQueueFull)
	})
}

func TestBuffer_ContextsThatHaveEndedMoveNothing(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errCause)
	for _, opts := range [][]sema.SharedOption{nil, {sema.Observe(&journal{})}} {
		for _, closed := range []bool{false, true} {
			b := classic.NewBuffer[int](2, opts...)
			b.TryPut(7)
			if closed {
				b.Close()
			}
			for name, c := range map[string]struct {
				ctx  context.Context
				want error
			}{"ended": {ended, errCause}, "nil": {noContext, sema.ErrInvalid}} {
				_, take := b.Take(c.ctx)
				_, takeUpTo := b.TakeUpTo(c.ctx, make([]int, 2))
				_, _, takeAny := classic.TakeAny(c.ctx, b)
				_, putAll := b.PutAll(c.ctx, []int{1})
				for op, err := range map[string]error{"Put": b.Put(c.ctx, 1), "PutAll": putAll, "Take": take, "TakeUpTo": takeUpTo, "TakeAny": takeAny} {
					if wantErr(t, err, c.want); b.Len() != 1 {
						t.Fatalf("%s with a context that is %s moved an item", op, name)
					}
				}
			}
		}
	}
}

func TestBuffer_CancelledWaitersLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := filled(t, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone, next := putting(ctx, b, 1), putting(t.Context(), b, 2)
		cancel(errCause)
		gone.wantErr(t, errCause)
		for _, want := range []int{0, 2} {
			if v, err := b.Take(t.Context()); v != want || err != nil {
				t.Fatalf("item %d, %v, want %d", v, err, want)
			}
			synctest.Wait()
		}
		next.want(t)
		ctx, cancel = context.WithCancelCause(t.Context())
		lost, served := taking(ctx, b), taking(t.Context(), b)
		cancel(errCause)
		lost.wantErr(t, errCause)
		wantErr(t, b.Put(t.Context(), 5), nil)
		if v := served.want(t); v != 5 {
			t.Errorf("item %d", v)
		}
		st := b.Stats()
		if st.Puts.Cancelled != 1 || st.Takes.Cancelled != 1 || st.Puts.Waiters+st.Takes.Waiters != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestBuffer_WaitersDoNotCrossABubble(t *testing.T) {
	b := classic.NewBuffer[int](1, sema.MaxWait(time.Hour))
	meet := func() {
		done := make(chan error)
		go func() {
			_, err := b.Take(context.Background())
			done <- err
		}()
		for b.Stats().Takes.Waiters == 0 {
			runtime.Gosched()
		}
		wantErr(t, b.Put(context.Background(), 1), nil)
		wantErr(t, <-done, nil)
	}
	for range 3 {
		meet()
		synctest.Test(t, func(*testing.T) { meet() })
	}
}
