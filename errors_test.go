package sema_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestError_ContainsTheFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(10, sema.Name("db"), sema.MaxWait(time.Second))
		_, tooLarge := s.Acquire(t.Context(), 12)
		_, negative := s.Acquire(t.Context(), -1)
		_, _, split := mustAcquire(t, s, 2).Split(2)
		one := mustAcquire(t, s, 1)
		_, _, splitOne := one.Split(1)
		one.Release()
		_, _, splitNone := sema.Permit{}.Split(1)
		held := mustAcquire(t, s, 8)
		_, full := s.TryAcquire(t.Context(), 3)
		_, timeout := s.Acquire(t.Context(), 3)
		s.Close()
		_, closed := s.Acquire(t.Context(), 1)
		_, unnamed := sema.New(1).Acquire(t.Context(), 2)
		_, noGate := sema.AcquireAll(t.Context(), sema.Want{})
		_, negativeWant := sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: -2})
		held.Release()
		for _, c := range []struct {
			err  error
			is   error
			text string
		}{
			{tooLarge, sema.ErrTooLarge, `sema: "db": acquire 12 of 10 permits: larger than capacity`},
			{negative, sema.ErrInvalid, `sema: "db": acquire -1 of 10 permits: invalid argument: negative weight`},
			{split, sema.ErrInvalid, `sema: "db": split: invalid argument: 2 off a permit of 2: want 1 to 1`},
			{splitOne, sema.ErrInvalid, `sema: "db": split: invalid argument: a permit of weight 1 has no parts`},
			{splitNone, sema.ErrInvalid, `sema: split: invalid argument: the permit is inert`},
			{full, sema.ErrFull, `sema: "db": try 3 of 10 permits: too few permits free (10 in use, 0 waiting)`},
			{timeout, sema.ErrTimeout, `sema: "db": acquire 3 of 10 permits: waited too long: 1s (10 in use, 0 waiting)`},
			{closed, sema.ErrClosed, `sema: "db": acquire 1 of 10 permits: closed`},
			{unnamed, sema.ErrTooLarge, `sema: acquire 2 of 1 permits: larger than capacity`},
			{noGate, sema.ErrInvalid, `sema: acquire all: invalid argument: want 0 has no gate`},
			{negativeWant, sema.ErrInvalid, `sema: "db": acquire all: invalid argument: want 0 has a negative weight, -2`},
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

func TestError_ContainsWhenToRetry(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, `sema: "db": try 3 of 10 permits: draining`},
		{-time.Second, `sema: "db": try 3 of 10 permits: draining`},
		{3 * time.Second, `sema: "db": try 3 of 10 permits: draining; try again after 3s`},
		{1234567 * time.Microsecond, `sema: "db": try 3 of 10 permits: draining; try again after 1.235s`},
		{1, `sema: "db": try 3 of 10 permits: draining; try again after 1ms`},
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

func TestError_SentinelsMatchMoreGeneralOnes(t *testing.T) {
	if !errors.Is(sema.ErrQueueFull, sema.ErrFull) || errors.Is(sema.ErrFull, sema.ErrQueueFull) {
		t.Error("ErrQueueFull must match ErrFull, and not the other way round")
	}
	if !errors.Is(sema.ErrTimeout, context.DeadlineExceeded) || errors.Is(sema.ErrTimeout, sema.ErrFull) {
		t.Error("ErrTimeout must match context.DeadlineExceeded and not ErrFull")
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

type reasoned struct{ error }

func (reasoned) Hint() string   { return "wait until the breaker closes" }
func (reasoned) Reason() string { return "breaker" }

func TestReasonAndHint_OfErrors(t *testing.T) {
	closed := sema.New(1)
	closed.Close()
	_, isClosed := closed.Acquire(t.Context(), 1)
	const raise, wait = "raise the capacity: 0 pauses the semaphore", time.Nanosecond
	paused := sema.New(0, sema.MaxWait(wait))
	_, pausedTry := paused.TryAcquire(t.Context(), 1)
	_, pausedWait := paused.Acquire(t.Context(), 1)
	_, negative := paused.Acquire(t.Context(), -1)
	_, wide := sema.NewStriped(4).Acquire(t.Context(), 2)
	counter := sema.NewCounter(0, 2)
	_, noContext := sema.New(1).Acquire(nil, 1) //lint:ignore SA1012 the nil context is what is tested
	for _, c := range []struct {
		err          error
		reason, hint string
	}{
		{nil, "", ""},
		{sema.ErrFull, "full", "wait with Acquire, or shed the request"},
		{sema.ErrQueueFull, "queue-full", "shed the request, or raise MaxWaiters"},
		{pausedTry, "full", raise},
		{pausedWait, "timeout", raise},
		{negative, "invalid", "pass a weight of 0 or more"},
		{wide, "too-large", "acquire permits of weight 1, or use a Semaphore"},
		{counter.Wait(t.Context(), 3), "too-large", "wait for less, or create the counter with a higher maximum"},
		{counter.Post(3), "over-release", "post at most what was taken, or create the counter with a higher maximum"},
		{sema.Do(t.Context(), nil, 1, nil), "invalid", "check the error of the function that returned the gate"},
		{&sema.Error{Op: "acquire", Err: sema.ErrTimeout}, "timeout", "look for permits held too long, or raise MaxWait or the capacity"},
		{&sema.Error{Op: "acquire", Err: sema.ErrTimeout, Advice: "sleep"}, "timeout", "sleep"},
		{fmt.Errorf("load: %w", isClosed), "closed", "create a new one: a closed one stays closed"},
		{noContext, "invalid", "pass context.Background() to wait without limit"},
		{&sema.Error{Op: "acquire", Err: reasoned{sema.ErrFull}}, "breaker", "wait until the breaker closes"},
		{&sema.Error{Op: "drain", Err: &sema.Error{Op: "configure", Err: sema.ErrFull, Advice: "the inner one"}}, "full", "the inner one"},
		{errors.Join(errors.New("no advice"), &sema.Error{Op: "acquire", Err: sema.ErrFull, Advice: "the second"}), "full", "the second"},
		{context.Canceled, "cancelled", ""},
		{context.DeadlineExceeded, "deadline", ""},
		{errors.New("disk on fire"), "other", ""},
		{&sema.Error{Op: "acquire"}, "other", ""},
	} {
		if got := sema.Reason(c.err); got != c.reason {
			t.Errorf("%v: reason %q, want %q", c.err, got, c.reason)
		}
		if got := sema.Hint(c.err); got != c.hint {
			t.Errorf("%v: hint %q, want %q", c.err, got, c.hint)
		}
	}
}
