// Package tickets has tickets that are not cancelled.
package tickets

import (
	"context"

	"github.com/sema-go/sema"
)

func discarded(s *sema.Semaphore) {
	s.Request(1)           // want `the ticket of s.Request is dropped: it stays queued and keeps its permit once granted; store it and defer its Cancel`
	_ = s.Request(1)       // want `the ticket of s.Request is dropped`
	<-s.Request(1).Ready() // want `the ticket of s.Request is dropped`
	s.Request(0)
}

func returnsEarly(ctx context.Context, s *sema.Semaphore) (sema.Permit, error) {
	t := s.Request(1) // want `neither t.Cancel nor t.Permit is called on a path to the return in line 23; defer t.Cancel\(\)`
	select {
	case <-t.Ready():
		return t.Permit()
	case <-ctx.Done():
		return sema.Permit{}, ctx.Err()
	}
}

func ofTwo(a, b *sema.Semaphore) {
	x, y := a.Request(1), b.Request(1) // want `neither y.Cancel nor y.Permit is called`
	defer x.Cancel()
	<-y.Ready()
}

func dropsItsPermit(s *sema.Semaphore) {
	t := s.Request(1)
	<-t.Ready()
	t.Permit() // want `the permit of t.Permit is dropped`
}

func cancels(ctx context.Context, s *sema.Semaphore) error {
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

func transfers(s *sema.Semaphore) *sema.Ticket {
	t := s.Request(1)
	return t
}
