// Package discarded has permits without a name.
package discarded

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/sematest"
	"github.com/sema-go/sema/wfq"
)

func statement(ctx context.Context, s *sema.Semaphore) {
	s.Acquire(ctx, 1)                              // want `the permit of s.Acquire is dropped: it can never be released; store it and defer its Release$`
	(s.TryAcquire(ctx, 1))                         // want `the permit of s.TryAcquire is dropped`
	s.TryAcquireFree(ctx)                          // want `the permit of s.TryAcquireFree is dropped`
	go s.Acquire(ctx, 1)                           // want `the permit of s.Acquire is dropped`
	defer s.Acquire(ctx, 1)                        // want `the permit of s.Acquire is dropped`
	sema.AcquireAll(ctx, sema.Want{Gate: s, N: 1}) // want `the permit of sema.AcquireAll is dropped`
}

func blanks(ctx context.Context, s *sema.Semaphore) {
	_, _ = s.Acquire(ctx, 1)     // want `the permit of s.Acquire is dropped`
	var _, _ = s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
}

func everyScope(ctx context.Context, g sema.Gate, h *host.Semaphore, st *sema.Striped, q *wfq.Queue, k *group.Keyed, own limiter) {
	g.Acquire(ctx, 1)                   // want `the permit of g.Acquire is dropped`
	h.Acquire(ctx, 1)                   // want `the permit of h.Acquire is dropped`
	st.Acquire(ctx, 1)                  // want `the permit of st.Acquire is dropped`
	q.Acquire(ctx, 1)                   // want `the permit of q.Acquire is dropped`
	q.Class("paid").TryAcquire(ctx, 1)  // want `the permit of q.Class\("paid"\).TryAcquire is dropped`
	wfq.Over(g, 1).Acquire(ctx, 1)      // want `the permit of wfq.Over\(g, 1\).Acquire is dropped`
	sematest.Wrap(g, 1).Acquire(ctx, 1) // want `the permit of sematest.Wrap\(g, 1\).Acquire is dropped`
	k.Of("key").Acquire(ctx, 1)         // want `the permit of k.Of\("key"\).Acquire is dropped`
	own.enter(ctx)                      // want `the permit of own.enter is dropped`
	own.maybe()                         // want `the permit of own.maybe is dropped`
}

type limiter struct{ sema.Gate }

func (l limiter) enter(ctx context.Context) (sema.Permit, error) { return l.Acquire(ctx, 1) }

func (l limiter) maybe() (sema.Permit, bool) { return sema.Permit{}, false }

func blankPermit(ctx context.Context, s *sema.Semaphore) error {
	_, err := s.Acquire(ctx, 1) // want `the permit of s.Acquire is dropped`
	if err != nil {
		return err
	}
	return nil
}

func blankInIf(ctx context.Context, s *sema.Semaphore) error {
	if _, err := s.Acquire(ctx, 1); err != nil { // want `the permit of s.Acquire is dropped`
		return err
	}
	return nil
}

func onlyTheError(ctx context.Context, s *sema.Semaphore) error {
	_, err := s.TryAcquire(ctx, 1) // want `the permit of s.TryAcquire is dropped`
	return err
}

func onlyChecksFull(ctx context.Context, s *sema.Semaphore) bool {
	_, err := s.TryAcquire(ctx, 1) // want `the permit of s.TryAcquire is dropped`
	return errors.Is(err, sema.ErrFull)
}

func half(p sema.Permit) (sema.Permit, error) {
	first, _, err := p.Split(1) // want `the permit of p.Split is dropped`
	return first, err
}

func zeroWeight(ctx context.Context, s *sema.Semaphore) error {
	s.Acquire(ctx, 0) // checks whether it is open
	if _, err := s.Acquire(ctx, 0); err != nil {
		return err
	}
	_, err := s.Acquire(ctx, 1)
	if err == nil {
		panic("it is closed")
	}
	return err
}

func notOurs(ctx context.Context, w *sema.Weighted, c *sema.Counter) {
	w.Acquire(ctx, 1)
	c.TryWait(1)
	sema.NewPermit(1, nil)
	stored()
}

// stored returns a permit without an error: its owner is unknown.
func stored() sema.Permit { return sema.Permit{} }
