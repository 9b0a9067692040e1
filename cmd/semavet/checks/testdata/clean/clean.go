// Package clean has nothing to report: every permit is released or transferred,
// or there is none.
package clean

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/sema-go/sema"
)

func deferred(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer p.Release()
	return work(ctx)
}

func deferredAtOnce(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	defer p.Release() // does nothing if there is none
	if err != nil {
		return err
	}
	return work(ctx)
}

func ifSucceeded(ctx context.Context, s *sema.Semaphore) (err error) {
	if p, err := s.Acquire(ctx, 1); err == nil {
		defer p.Release()
		return work(ctx)
	}
	return err
}

func elseBranch(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.TryAcquire(ctx, 1)
	if errors.Is(err, sema.ErrFull) {
		return nil
	} else if err != nil {
		return err
	} else {
		p.Release()
	}
	return nil
}

func switches(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.TryAcquire(ctx, 1)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	p.Release()
	p, err = s.TryAcquire(ctx, 1)
	switch err {
	case nil:
	case sema.ErrFull:
		return nil
	default:
		return err
	}
	p.Release()
	p, err = s.TryAcquire(ctx, 1)
	switch err := err.(type) {
	case *sema.Error:
		return err
	}
	p.Release()
	p, err = s.TryAcquire(ctx, 1)
	switch err.(type) {
	case *sema.Error:
		return err
	}
	p.Release()
	return nil
}

func expectedError(ctx context.Context, s *sema.Semaphore) bool {
	p, err := s.TryAcquire(ctx, 1)
	if err == sema.ErrFull || errors.Is(err, sema.ErrClosed) {
		return false
	}
	p.Release()
	return true
}

func customCheck(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	if failed(err) {
		return err
	}
	p.Release()
	p, err = s.Acquire(ctx, 1)
	ok := err == nil
	if !ok {
		return err
	}
	p.Release()
	var last error
	p, err = s.Acquire(ctx, 1)
	if last = err; last != nil {
		return last
	}
	p.Release()
	return nil
}

func failed(err error) bool { return err != nil }

func wrapped(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		err = fmt.Errorf("today: %w", err)
	}
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

func retries(ctx context.Context, s *sema.Semaphore) error {
	var p sema.Permit
	var err error
	for range 3 {
		p, err = s.TryAcquire(ctx, 1)
		if err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	defer p.Release()
	return work(ctx)
}

func heldOrNot(ctx context.Context, s *sema.Semaphore) error {
	p, _ := s.TryAcquire(ctx, 1)
	if !p.Held() {
		return nil
	}
	p.Release()
	p, err := s.TryAcquire(ctx, 1)
	if p.Held() {
		p.Release()
	}
	return err
}

func transferred(ctx context.Context, s *sema.Semaphore, to chan sema.Permit) (sema.Permit, error) {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return sema.Permit{}, err
	}
	switch p.Weight() {
	case 1:
		to <- p
	case 2:
		go use(p)
	case 3:
		go func() { p.Release() }()
	case 4:
		all = append(all, p)
	case 5:
		var h holder
		h.permit = p
	case 6:
		release := p.Release
		defer release()
	case 7:
		s.Forget(p)
	case 8:
		log.Println(holder{p})
	default:
		return p, nil
	}
	return sema.Permit{}, nil
}

var all []sema.Permit

type holder struct{ permit sema.Permit }

func use(p sema.Permit) { p.Release() }

func named(ctx context.Context, s *sema.Semaphore) (p sema.Permit, err error) {
	p, err = s.Acquire(ctx, 1)
	if err != nil {
		return
	}
	return
}

func deferredBefore(ctx context.Context, s *sema.Semaphore) (err error) {
	var p sema.Permit
	defer func() { p.Release() }()
	p, err = s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	return work(ctx)
}

func byAddress(ctx context.Context, s *sema.Semaphore) (err error) {
	var p sema.Permit
	defer releaseLater(&p)
	p, err = s.Acquire(ctx, 1)
	return err
}

func releaseLater(p *sema.Permit) { p.Release() }

func intoAField(ctx context.Context, s *sema.Semaphore) error {
	var h holder
	var failure struct{ err error }
	h.permit, failure.err = s.Acquire(ctx, 1)
	p, _ := h.permit, 0
	p, failure.err = s.Acquire(ctx, 1)
	if failure.err != nil {
		return failure.err
	}
	p.Release()
	return nil
}

func outerVariable(ctx context.Context, s *sema.Semaphore) error {
	var p sema.Permit
	err := func() (err error) {
		p, err = s.Acquire(ctx, 1)
		return err
	}()
	p.Release()
	return err
}

func sameCondition(ctx context.Context, s *sema.Semaphore, limited bool) (err error) {
	var p sema.Permit
	if limited {
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	err = work(ctx)
	if limited {
		p.Release()
	}
	return err
}

func oppositeCondition(ctx context.Context, s *sema.Semaphore, n int) (err error) {
	var p sema.Permit
	if s != nil && n > 0 {
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	err = work(ctx)
	if n <= 0 || s == nil {
		return err
	}
	p.Release()
	return err
}

func byAFlag(ctx context.Context, s *sema.Semaphore, n int) (err error) {
	var p sema.Permit
	had := false
	if n > 2 {
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
		had = true
	}
	err = work(ctx)
	if had {
		p.Release()
	}
	return err
}

func sameCase(ctx context.Context, s *sema.Semaphore, mode int) (err error) {
	var p sema.Permit
	if mode == 7 {
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	err = work(ctx)
	switch mode {
	case 7:
		p.Release()
	}
	return err
}

func fromACase(ctx context.Context, s *sema.Semaphore, mode int) (err error) {
	var p sema.Permit
	switch mode {
	case 7:
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	if mode == 7 {
		defer p.Release()
	}
	return work(ctx)
}

func boolOfAnotherMeaning(ctx context.Context) {
	p, full := tryAll(ctx)
	if full {
		return
	}
	p.Release()
}

func tryAll(context.Context) (p sema.Permit, full bool) { return sema.Permit{}, true }

func weightZero(ctx context.Context, s *sema.Semaphore, n int64) error {
	p, err := s.Acquire(ctx, n)
	if err == nil && n > 0 {
		all = append(all, p)
	}
	return err
}

func weightNotZero(ctx context.Context, s *sema.Semaphore, n int64) error {
	p, err := s.Acquire(ctx, n)
	if err != nil || n == 0 {
		return err
	}
	defer p.Release()
	return work(ctx)
}

func inSomeIteration(ctx context.Context, s *sema.Semaphore, jobs chan int) error {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	for range 2 {
		select {
		case <-jobs:
			p.Release()
		case <-ctx.Done():
		}
	}
	return nil
}

func everyIteration(ctx context.Context, s *sema.Semaphore) error {
	for {
		p, err := s.Acquire(ctx, 1)
		if errors.Is(err, sema.ErrFull) {
			continue
		}
		if err != nil {
			return err
		}
		if work(ctx) != nil {
			p.Release()
			break
		}
		p.Release()
	}
	return nil
}

func lastIteration(ctx context.Context, s *sema.Semaphore) (err error) {
	var p sema.Permit
	for range 3 {
		p.Release()
		if p, err = s.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	p.Release()
	return nil
}

func panics(ctx context.Context, s *sema.Semaphore) {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	if work(ctx) != nil {
		panic("it is over")
	}
	p.Release()
}

func jumps(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		goto done
	}
	p.Release()
done:
	return err
}

func contextLeaves(ctx context.Context, s *sema.Semaphore) (context.Context, context.CancelFunc) {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return nil, nil
	}
	return p.Context(ctx)
}

func helperOfTests(t testing.TB, s *sema.Semaphore) sema.Permit { // want helperOfTests:"hands over what it acquired"
	p, err := s.Acquire(t.Context(), 1)
	if err != nil {
		t.Error(err)
	}
	if p.Weight() != 1 {
		t.Fatal(p.Weight())
	}
	if _, err := s.TryAcquire(t.Context(), 1); err == nil {
		t.Error("it is not full")
	}
	return p
}

func work(context.Context) error { return nil }
