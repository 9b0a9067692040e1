package classic_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

func passing(ctx context.Context, s *classic.Turnstile) *call[struct{}] {
	return start(func() (struct{}, error) { return struct{}{}, s.Pass(ctx) })
}

func TestTurnstile_Conforms(t *testing.T) {
	t.Parallel()
	sematest.Check(t, sematest.Traits{FIFO: true, Binary: true}, func(*testing.T, int64) sema.Gate {
		return classic.NewTurnstile()
	})
}

func TestTurnstile_NonePassesWhileItIsHeldOrShut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := classic.NewTurnstile(sema.Name("workers"), sema.MaxWait(time.Minute))
		wantErr(t, s.Pass(t.Context()), nil)
		held := mustAcquire(t, s, 1)
		a, b := passing(t.Context(), s), passing(t.Context(), s)
		if got, want := s.String(), `turnstile "workers": held, 2 waiting`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.Shut()
		s.Shut()
		held.Release()
		a.wantWaiting(t)
		if got, want := s.String(), `turnstile "workers": shut, 2 waiting`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.Open()
		s.Open()
		a.want(t)
		b.want(t)
		if got, want := s.String(), `turnstile "workers": open, 0 waiting`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.Shut()
		late := passing(t.Context(), s)
		time.Sleep(time.Minute)
		late.wantErr(t, sema.ErrTimeout)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := passing(ctx, s)
		cancel(errCause)
		gone.wantErr(t, errCause)
		wantErr(t, s.Pass(noContext), sema.ErrInvalid)
		waiting := passing(t.Context(), s)
		s.Close()
		waiting.wantErr(t, sema.ErrClosed)
		wantErr(t, s.Pass(t.Context()), sema.ErrClosed)
		if got, want := s.String(), `turnstile "workers": closed, 0 waiting`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestTurnstile_Explored builds Downey's lock of readers and writers without starvation: a
// writer holds the turnstile that each reader passes.
func TestTurnstile_Explored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		turnstile := w.Gate(classic.NewTurnstile(sema.Name("turnstile")))
		room := w.Gate(sema.New(10, sema.Name("room")))
		reading, writing := 0, 0
		w.Always("a writer is alone", func() bool { return writing == 0 || writing == 1 && reading == 0 })
		for i := range 3 {
			w.Go(fmt.Sprint("reader ", i), func(ctx context.Context) {
				if p, err := turnstile.Acquire(ctx, 1); err == nil {
					p.Release()
				}
				p, err := room.Acquire(ctx, 1)
				if err != nil {
					return
				}
				reading++
				w.Yield()
				reading--
				p.Release()
			})
		}
		for i := range 2 {
			w.Go(fmt.Sprint("writer ", i), func(ctx context.Context) {
				held, err := turnstile.Acquire(ctx, 1)
				if err != nil {
					return
				}
				defer held.Release()
				p, err := room.Acquire(ctx, 10)
				if err != nil {
					return
				}
				writing++
				w.Yield()
				writing--
				p.Release()
			})
		}
	})
}

func TestTurnstile_ErrorsHaveTheHintOfAShutOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := classic.NewTurnstile(sema.MaxWait(time.Minute))
		held := mustAcquire(t, s, 1)
		_, busy := s.TryAcquire(t.Context(), 1)
		if wantErr(t, busy, sema.ErrFull); sema.Hint(busy) != sema.Hint(sema.ErrFull) {
			t.Errorf("held: %q", sema.Hint(busy))
		}
		held.Release()
		s.Shut()
		_, full := s.TryAcquire(t.Context(), 1)
		_, late := s.Acquire(t.Context(), 1)
		wantErr(t, full, sema.ErrFull)
		wantErr(t, late, sema.ErrTimeout)
		for _, err := range []error{full, late, s.Pass(t.Context())} {
			if want := "wait until the turnstile is opened: it is shut"; sema.Hint(err) != want {
				t.Errorf("%v: hint %q, want %q", err, sema.Hint(err), want)
			}
		}
	})
}
