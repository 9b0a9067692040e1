package sema_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
)

// wantText checks the common ways to print a value.
func wantText(t *testing.T, value any, want string) {
	t.Helper()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, value); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
	if _, isError := value.(error); isError {
		return
	}
	var text, object bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("m", "value", value)
	if got := text.String(); !strings.Contains(got, "value="+want+"\n") && !strings.Contains(got, "value="+strconv.Quote(want)+"\n") {
		t.Errorf("slog as text: got %s, want %s", got, want)
	}
	slog.New(slog.NewJSONHandler(&object, nil)).Info("m", "value", value)
	var logged struct{ Value any }
	if err := json.Unmarshal(object.Bytes(), &logged); err != nil || logged.Value != want {
		t.Errorf("slog as JSON: got %s, want %s", object.String(), want)
	}
}

func TestSemaphore_PrintsItsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(40, sema.Name("db"))
		held := mustAcquire(t, s, 38)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go s.Acquire(ctx, 30)
		}
		synctest.Wait()
		wantText(t, s, `semaphore "db": 38 of 40 in use, 2 waiting`)
		s.Resize(4)
		synctest.Wait()
		wantText(t, s, `semaphore "db": 38 of 4 in use, 0 waiting`)
		cancel()
		s.Drain(ctx)
		wantText(t, s, `semaphore "db": 38 of 4 in use, 0 waiting, draining`)
		s.Close()
		held.Release()
		wantText(t, s, `semaphore "db": 0 of 4 in use, 0 waiting, closed`)
	})
	wantText(t, sema.New(math.MaxInt64), "semaphore: 0 in use, unlimited, 0 waiting")
	wantText(t, sema.New(1, sema.Name("a\x1b[31m")), `semaphore "a\x1b[31m": 0 of 1 in use, 0 waiting`)
	wantText(t, new(sema.Semaphore), "semaphore: zero value, create it with sema.New")
	wantText(t, (*sema.Semaphore)(nil), "<nil>")
}

// A namedLease is the lease of a custom gate.
type namedLease struct{}

func (namedLease) Release()     {}
func (namedLease) Name() string { return "mine" }

func TestPermit_PrintsItsState(t *testing.T) {
	named := sema.New(10, sema.Name("db"))
	for _, s := range []struct {
		gate sema.Gate
		of   string
	}{
		{named, ` of "db"`},
		{sema.New(10, sema.Name("db"), sema.Diagnose(sema.DiagnoseFull)), ` of "db"`},
		{sema.New(10, sema.Name("db"), sema.Observe(&journal{})), ` of "db"`},
		{sema.New(10), ""},
		{sema.NewStriped(10), ""},
	} {
		p, second := mustAcquire(t, s.gate, 1), mustAcquire(t, s.gate, 1)
		for _, q := range []sema.Permit{p, second} {
			wantText(t, q, "permit"+s.of+": 1, held")
			wantText(t, &q, "permit"+s.of+": 1, held")
			q.Release()
			wantText(t, q, "permit"+s.of+": 1, not held")
		}
	}
	wantText(t, sema.Permit{}, "permit: inert")
	wantText(t, sema.NewPermit(3, namedLease{}), `permit of "mine": 3, held`)
	wantText(t, sema.NewPermit(3, &struct{ sema.Lease }{}), `permit: 3, held`)
}

func TestCounter_PrintsItsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sema.NewCounter(3, 10, sema.Name("jobs"))
		go c.Wait(t.Context(), 4)
		synctest.Wait()
		wantText(t, c, `counter "jobs": 3 of 10, 1 waiting`)
		c.Close()
		synctest.Wait()
		wantText(t, c, `counter "jobs": 3 of 10, 0 waiting, closed`)
	})
	wantText(t, new(sema.Counter), "counter: zero value, create it with sema.NewCounter")
	wantText(t, (*sema.Counter)(nil), "<nil>")
}

func TestTicket_PrintsItsState(t *testing.T) {
	s := sema.New(2, sema.Name("db"))
	granted := s.Request(2)
	waiting := s.Request(1)
	wantText(t, granted, `request to "db": 2, granted`)
	wantText(t, waiting, `request to "db": 1, waiting`)
	p, err := granted.Permit()
	wantErr(t, err, nil)
	wantText(t, granted, `request to "db": 2, taken`)
	waiting.Cancel()
	wantText(t, waiting, `request to "db": 1, failed: context canceled`)
	p.Release()
	wantText(t, sema.New(1).Request(1), `request: 1, granted`)
	wantText(t, new(sema.Ticket), "request: zero value, create it with Semaphore.Request")
	wantText(t, (*sema.Ticket)(nil), "<nil>")
}

func TestStriped_PrintsItsFigures(t *testing.T) {
	s := sema.NewStriped(4)
	mustAcquire(t, s, 1)
	wantText(t, s, "striped semaphore: 1 of 4 in use, 0 waiting")
	wantText(t, new(sema.Striped), "striped semaphore: zero value, create it with sema.NewStriped")
	wantText(t, (*sema.Striped)(nil), "<nil>")
}

func TestWeighted_PrintsItsFigures(t *testing.T) {
	s := sema.NewWeighted(4)
	wantErr(t, s.Acquire(t.Context(), 3), nil)
	wantText(t, s, "weighted semaphore: 3 of 4 in use, 0 waiting")
	s.Release(3)
	wantPanic(t, "released more than held", func() { s.Release(1) })
	wantText(t, s, "weighted semaphore: 0 of 4 in use, 0 waiting")
	wantText(t, new(sema.Weighted), "weighted semaphore: 0 of 0 in use, 0 waiting")
	wantText(t, (*sema.Weighted)(nil), "<nil>")
}

func TestSpin_PrintsItsFigures(t *testing.T) {
	s := sema.NewSpin(3)
	s.TryAcquire()
	wantText(t, s, "spin semaphore: 1 of 3 in use")
	wantText(t, new(sema.Spin), "spin semaphore: 0 of 1 in use")
	wantText(t, (*sema.Spin)(nil), "<nil>")
}

func TestError_PrintsItsText(t *testing.T) {
	_, err := sema.New(1, sema.Name("db")).Acquire(t.Context(), 2)
	wantText(t, err, err.Error())
	wantText(t, sema.ErrFull, sema.ErrFull.Error())
}

// TestSemaphore_PrintsWhileInUse prints a semaphore while other goroutines use it, for the
// race detector.
func TestSemaphore_PrintsWhileInUse(t *testing.T) {
	s, c, striped := sema.New(3, sema.Name("db")), sema.NewCounter(2, 4), sema.NewStriped(3)
	weighted := sema.NewWeighted(3)
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 200 {
				p, q := mustAcquire(t, s, 1), mustAcquire(t, striped, 1)
				wantErr(t, c.Wait(t.Context(), 1), nil)
				wantErr(t, weighted.Acquire(t.Context(), 1), nil)
				ticket := s.Request(1)
				_ = fmt.Sprintf("%v %+v %#v %v %v %v %v", s, p, q, c, striped, weighted, ticket)
				ticket.Cancel()
				weighted.Release(1)
				wantErr(t, c.Post(1), nil)
				p.Release()
				q.Release()
				_ = fmt.Sprint(p, q)
			}
		})
	}
	working.Wait()
}
