//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
)

func gateOf(t *testing.T, s *posix.Semaphore, capacity int64, opts ...sema.SharedOption) *posix.Gate {
	t.Helper()
	g, err := posix.AsGate(s, capacity, opts...)
	wantErr(t, err, nil)
	return g
}

func TestGate_AcquireAndRelease(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	g := gateOf(t, s, 1)
	p, err := g.Acquire(t.Context(), 1)
	wantErr(t, err, nil)
	if p.Weight() != 1 || !p.Held() {
		t.Errorf("weight %d, held %t", p.Weight(), p.Held())
	}
	_, err = g.TryAcquire(t.Context(), 1)
	wantErr(t, err, sema.ErrFull)
	acquired := make(chan error, 1)
	go func() {
		p, err := g.Acquire(t.Context(), 1)
		p.Release()
		acquired <- err
	}()
	awaitSleepers(t, s, 1)
	p.Release()
	p.Release()
	wantErr(t, result(t, acquired), nil)
	wantState(t, s, 1, 0)
	p, err = g.TryAcquire(t.Context(), 1)
	wantErr(t, err, nil)
	wantState(t, s, 0, 0)
	p.Release()
}

func TestGate_InvalidArguments(t *testing.T) {
	t.Parallel()
	s := create(t, 3)
	g := gateOf(t, s, 3)
	why := errors.New("why")
	ended, end := context.WithCancelCause(t.Context())
	end(why)
	for what, acquire := range map[string]func(context.Context, int64) (sema.Permit, error){"acquire": g.Acquire, "try": g.TryAcquire} {
		for _, c := range []struct {
			ctx  context.Context
			n    int64
			want error
		}{
			{nil, 1, sema.ErrInvalid},
			{nil, 0, sema.ErrInvalid},
			{ended, -1, sema.ErrInvalid},
			{ended, 0, why},
			{ended, 1, why},
			{ended, 2, why},
			{t.Context(), -1, sema.ErrInvalid},
			{t.Context(), 0, nil},
			{t.Context(), 2, sema.ErrTooLarge},
		} {
			p, err := acquire(c.ctx, c.n)
			if !errors.Is(err, c.want) || p.Held() {
				t.Errorf("%s of %d: error %v, want %v; held %t", what, c.n, err, c.want, p.Held())
			}
			if c.want == sema.ErrTooLarge && !strings.Contains(err.Error(), "one permit at a time") {
				t.Errorf("%v does not contain the reason", err)
			}
		}
	}
	wantState(t, s, 3, 0)
	s.Close()
	for _, n := range []int64{0, 1} {
		_, err := g.Acquire(t.Context(), n)
		wantErr(t, err, sema.ErrClosed)
		_, err = g.TryAcquire(t.Context(), n)
		wantErr(t, err, sema.ErrClosed)
	}
}

func TestGate_PermitsSurviveClose(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	again := openAgain(t, s)
	p, err := gateOf(t, s, 1).Acquire(t.Context(), 1)
	wantErr(t, err, nil)
	s.Close()
	wantState(t, again, 0, 0)
	p.Release()
	wantState(t, again, 1, 0)
}

func TestGate_AcquireAll(t *testing.T) {
	t.Parallel()
	s := create(t, 2)
	g := gateOf(t, s, 2)
	if g.Name() != s.Name() || g.Scope() != sema.HostScope {
		t.Errorf("name %q, scope %v", g.Name(), g.Scope())
	}
	_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: g, N: 1}, sema.Want{Gate: g, N: 1})
	wantErr(t, err, sema.ErrTooLarge) // the same gate twice asks for two permits
	wantState(t, s, 2, 0)
	local := sema.New(1)
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: local, N: 1}, sema.Want{Gate: g, N: 1})
	wantErr(t, err, nil)
	wantState(t, s, 1, 0)
	p.Release()
	wantState(t, s, 2, 0)
}

func TestAsGate_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	s := create(t, 3)
	for about, make := range map[string]func() (*posix.Gate, error){
		"no semaphore":        func() (*posix.Gate, error) { return posix.AsGate(nil, 1) },
		"capacity 0":          func() (*posix.Gate, error) { return posix.AsGate(s, 0) },
		"a large capacity":    func() (*posix.Gate, error) { return posix.AsGate(s, posix.MaxValue+1) },
		"less than the value": func() (*posix.Gate, error) { return posix.AsGate(s, 2) },
		"a bound of waiters":  func() (*posix.Gate, error) { return posix.AsGate(s, 3, sema.MaxWaiters(1)) },
		"no waiters":          func() (*posix.Gate, error) { return posix.AsGate(s, 3, sema.MaxWaiters(0)) },
	} {
		if _, err := make(); !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %v", about, err)
		}
	}
}

func TestGate_Options(t *testing.T) {
	t.Parallel()
	var kinds []sema.EventKind
	s := create(t, 1)
	g := gateOf(t, s, 1, sema.Name("label"), sema.MaxWait(time.Millisecond), sema.Diagnose(sema.DiagnoseFull), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Name != "label" {
			t.Errorf("%+v", e)
		}
		kinds = append(kinds, e.Kind)
	})))
	p, err := g.Acquire(t.Context(), 1)
	wantErr(t, err, nil)
	held := func() (n int) {
		for _, h := range sema.Holders() {
			if h.Name == "label" && strings.Contains(h.Site, "gate_linux_test.go") {
				n++
			}
		}
		return n
	}
	if held() != 1 {
		t.Errorf("%d holders, want 1", held())
	}
	_, err = g.Acquire(t.Context(), 1)
	wantErr(t, err, sema.ErrTimeout)
	if !strings.Contains(err.Error(), `"label": acquire 1 of 1 permits: waited too long: 1ms (1 in use, 0 waiting)`) {
		t.Error(err)
	}
	_, err = g.TryAcquire(t.Context(), 1)
	wantErr(t, err, sema.ErrFull)
	st := g.Stats()
	if st.WaitTime < time.Millisecond {
		t.Errorf("wait time %v, want at least 1ms", st.WaitTime)
	}
	st.WaitTime = 0
	if want := (sema.Stats{Capacity: 1, InUse: 1, Counts: sema.Counts{Acquired: 1, Waited: 1, TimedOut: 1, Rejected: 1}}); st != want {
		t.Errorf("%+v, want %+v", st, want)
	}
	p.Release()
	if held() != 0 {
		t.Errorf("%d holders after the release", held())
	}
	wantErr(t, g.Close(), nil)
	wantErr(t, g.Close(), nil)
	_, err = g.Acquire(t.Context(), 1)
	wantErr(t, err, sema.ErrClosed)
	want := []sema.EventKind{sema.EventAcquired, sema.EventExhausted, sema.EventQueued, sema.EventTimedOut, sema.EventRejected,
		sema.EventReleased, sema.EventRecovered, sema.EventClosed, sema.EventRejected}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("reported %v, want %v", kinds, want)
	}
}

func TestGate_UnsupportedOperations(t *testing.T) {
	t.Parallel()
	g := gateOf(t, create(t, 1), 1)
	for about, do := range map[string]func(context.Context) error{
		"resize": func(ctx context.Context) error { return g.Resize(ctx, 2) },
		"drain":  g.Drain,
		"resume": g.Resume,
	} {
		if err := do(nil); !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %v", about, err)
		}
		if err := do(t.Context()); !errors.Is(err, errors.ErrUnsupported) || sema.Hint(err) == "" {
			t.Errorf("%s: %v", about, err)
		}
	}
}
