// Package tickets has requests that nobody ends.
package tickets

import (
	"context"

	"github.com/sema-go/sema"
)

func thrown(s *sema.Semaphore) {
	s.Request(1)           // want `the ticket of s.Request is dropped: it stays in line, and keeps what it is granted; keep it, and defer its Cancel`
	_ = s.Request(1)       // want `the ticket of s.Request is dropped`
	<-s.Request(1).Ready() // want `the ticket of s.Request is dropped`
	s.Request(0)
}

func givesUp(ctx context.Context, s *sema.Semaphore) (sema.Permit, error) {
	t := s.Request(1) // want `t is neither cancelled nor asked for its permit on a path to the return in line 23; defer t.Cancel\(\)`
	select {
	case <-t.Ready():
		return t.Permit()
	case <-ctx.Done():
		return sema.Permit{}, ctx.Err()
	}
}

func ofTwo(a, b *sema.Semaphore) {
	x, y := a.Request(1), b.Request(1) // want `y is neither cancelled nor asked`
	defer x.Cancel()
	<-y.Ready()
}

func dropsItsPermit(s *sema.Semaphore) {
	t := s.Request(1)
	<-t.Ready()
	t.Permit() // want `the permit of t.Permit is dropped`
}

func cares(ctx context.Context, s *sema.Semaphore) error {
	t := s.Request(1)
	defer t.Cancel()
	select {
	case <-t.Ready():
		p, err := t.Permit()
		if err != nil {
			return err
		}
		p.Release()
	case <-ctx.Done():
	}
	return nil
}

func handsOn(s *sema.Semaphore) *sema.Ticket {
	t := s.Request(1)
	return t
}
