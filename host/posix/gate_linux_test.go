//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
)

func TestGateHandsOutPermits(t *testing.T) {
	t.Parallel()
	s := fresh(t, 1)
	g := posix.AsGate(s)
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
	asleep(t, s, 1)
	p.Release()
	p.Release()
	wantErr(t, result(t, acquired), nil)
	wantState(t, s, 1, 0)
	p, err = g.TryAcquire(t.Context(), 1)
	wantErr(t, err, nil)
	wantState(t, s, 0, 0)
	p.Release()
}

func TestGateAnswersUnusualCalls(t *testing.T) {
	t.Parallel()
	s := fresh(t, 3)
	g := posix.AsGate(s)
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
				t.Errorf("%v: does not say why", err)
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

func TestPermitsSurviveClose(t *testing.T) {
	t.Parallel()
	s := fresh(t, 1)
	again := reopened(t, s)
	p, err := posix.AsGate(s).Acquire(t.Context(), 1)
	wantErr(t, err, nil)
	s.Close()
	wantState(t, again, 0, 0)
	p.Release()
	wantState(t, again, 1, 0)
}

func TestGateTakesItsPlaceInAcquireAll(t *testing.T) {
	t.Parallel()
	s := fresh(t, 2)
	g := posix.AsGate(s)
	if g.(interface{ Name() string }).Name() != s.Name() || g.(interface{ Scope() sema.Scope }).Scope() != sema.HostScope {
		t.Error("wrong name or scope")
	}
	_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: g, N: 1}, sema.Want{Gate: posix.AsGate(s), N: 1})
	wantErr(t, err, sema.ErrTooLarge) // the same gate twice is a want of two
	wantState(t, s, 2, 0)
	local := sema.New(1)
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: local, N: 1}, sema.Want{Gate: g, N: 1})
	wantErr(t, err, nil)
	wantState(t, s, 1, 0)
	p.Release()
	wantState(t, s, 2, 0)
}
