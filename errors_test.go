package sema_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestErrorsSayWhatHowMuchWhyAndWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10, sema.Name("db"), sema.MaxWait(time.Second))
		_, tooLarge := s.Acquire(t.Context(), 12)
		_, negative := s.Acquire(t.Context(), -1)
		_, _, split := mustAcquire(t, s, 2).Split(2)
		held := mustAcquire(t, s, 8)
		_, full := s.TryAcquire(t.Context(), 3)
		_, timeout := s.Acquire(t.Context(), 3)
		s.Close()
		_, closed := s.Acquire(t.Context(), 1)
		_, unnamed := sema.New(1).Acquire(t.Context(), 2)
		_, noGate := sema.AcquireAll(t.Context(), sema.Want{})
		held.Release()
		for _, c := range []struct {
			err  error
			is   error
			text string
		}{
			{tooLarge, sema.ErrTooLarge, `sema: "db": acquire 12 of 10 permits: larger than capacity; split the request, or raise the capacity`},
			{negative, sema.ErrInvalid, `sema: "db": acquire -1 of 10 permits: invalid argument: negative weight`},
			{split, sema.ErrInvalid, `sema: split: invalid argument: 2 off a permit of 2: want 1 to 1`},
			{full, sema.ErrFull, `sema: "db": try 3 of 10 permits: too few permits free (10 in use, 0 waiting); wait with Acquire, or shed the request`},
			{timeout, sema.ErrTimeout, `sema: "db": acquire 3 of 10 permits: waited too long: 1s (10 in use, 0 waiting); look for permits held too long, or raise MaxWait or the capacity`},
			{closed, sema.ErrClosed, `sema: "db": acquire 1 of 10 permits: closed; make a new one; what is closed stays closed`},
			{unnamed, sema.ErrTooLarge, `sema: acquire 2 of 1 permits: larger than capacity; split the request, or raise the capacity`},
			{noGate, sema.ErrInvalid, `sema: acquire all: invalid argument: want 0 has no gate`},
		} {
			wantErr(t, c.err, c.is)
			if got := c.err.Error(); got != c.text {
				t.Errorf("got  %s\nwant %s", got, c.text)
			}
		}
		var e *sema.Error
		if !errors.As(full, &e) || e.Weight != 3 || e.Capacity != 10 || e.InUse != 10 || e.Name != "db" {
			t.Errorf("facts %+v", e)
		}
	})
}

func TestError_SaysWhenToTryAgain(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, `sema: "db": try 3 of 10 permits: draining; go elsewhere, or retry when it is open again`},
		{-time.Second, `sema: "db": try 3 of 10 permits: draining; go elsewhere, or retry when it is open again`},
		{3 * time.Second, `sema: "db": try 3 of 10 permits: draining; try again after 3s; go elsewhere, or retry when it is open again`},
		{1234567 * time.Microsecond, `sema: "db": try 3 of 10 permits: draining; try again after 1.235s; go elsewhere, or retry when it is open again`},
		{1, `sema: "db": try 3 of 10 permits: draining; try again after 1ms; go elsewhere, or retry when it is open again`},
	} {
		err := &sema.Error{Op: "try", Name: "db", Weight: 3, Capacity: 10, After: c.after, Err: sema.ErrDraining}
		if got := err.Error(); got != c.want {
			t.Errorf("After %v:\ngot  %s\nwant %s", c.after, got, c.want)
		}
	}
}

func TestError_WithoutCausePrints(t *testing.T) {
	if got, want := (&sema.Error{Op: "try", Name: "db"}).Error(), `sema: "db": try: failed`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSentinelsAreSpecialCasesOfEachOther(t *testing.T) {
	if !errors.Is(sema.ErrQueueFull, sema.ErrFull) || errors.Is(sema.ErrFull, sema.ErrQueueFull) {
		t.Error("a full queue is a full semaphore, and not the other way round")
	}
	if !errors.Is(sema.ErrTimeout, context.DeadlineExceeded) || errors.Is(sema.ErrTimeout, sema.ErrFull) {
		t.Error("a timeout is a deadline exceeded")
	}
	all := []error{sema.ErrFull, sema.ErrClosed, sema.ErrDraining, sema.ErrTooLarge, sema.ErrLost,
		sema.ErrUnavailable, sema.ErrOverRelease, sema.ErrTimeout, sema.ErrInvalid}
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("%v is %v: %v", a, b, errors.Is(a, b))
			}
		}
	}
}
