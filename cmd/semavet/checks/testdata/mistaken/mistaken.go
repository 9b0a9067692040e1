// Package mistaken misuses Sema.
package mistaken

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"golang.org/x/sync/semaphore"
)

type service struct {
	gate    *sema.Semaphore
	memory  *sema.Weighted
	slots   *semaphore.Weighted
	conns   *pool.Pool[int]
	changed *sema.Counter
}

func newService() *service {
	return &service{memory: sema.NewWeighted(8), slots: semaphore.NewWeighted(8)}
}

// ignoredError: the error of a goroutine's acquire.
func (s *service) ignoredError(ctx context.Context) {
	go func() {
		p, _ := s.gate.Acquire(ctx, 1) // want `the error of s\.gate\.Acquire is ignored`
		defer p.Release()
		work(ctx)
	}()
}

// returnsEarly: returns before the release.
func (s *service) returnsEarly(ctx context.Context) error {
	p, err := s.gate.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.Release()
	return nil
}

// continues: continue without a release.
func (s *service) continues(ctx context.Context, jobs []int) {
	for _, j := range jobs {
		p, err := s.gate.Acquire(ctx, 1) // want `p is not released`
		if err != nil {
			return
		}
		if j < 0 {
			continue
		}
		p.Release()
	}
}

// oneCase: one case of a switch forgets.
func (s *service) oneCase(ctx context.Context, mode int) error {
	p, err := s.gate.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return err
	}
	switch mode {
	case 1:
		p.Release()
	case 2:
		return nil
	default:
		p.Release()
	}
	return nil
}

// labelledBreak: a labelled break.
func (s *service) labelledBreak(ctx context.Context, rows [][]int) error {
outer:
	for range rows {
		p, err := s.gate.Acquire(ctx, 1) // want `p is not released`
		if err != nil {
			return err
		}
		if work(ctx) != nil {
			break outer
		}
		p.Release()
	}
	return nil
}

// handler: a handler without defer.
func (s *service) handler(w http.ResponseWriter, r *http.Request) {
	p, err := s.gate.Acquire(r.Context(), 1)
	if err != nil {
		return
	}
	work(r.Context())
	p.Release() // want `p\.Release is not deferred`
}

// tooLittle: acquire 3, release 1.
func (s *service) tooLittle(ctx context.Context) error {
	if err := s.memory.Acquire(ctx, 3); err != nil { // want `s\.memory\.Acquire acquires 3, of which 1 is released`
		return err
	}
	defer s.memory.Release(1)
	return work(ctx)
}

// tooMuch: release 3, acquire 1.
func (s *service) tooMuch(ctx context.Context) error {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	err := work(ctx)
	s.slots.Release(3) // want `s\.slots\.Release\(3\) releases more than the 1 that this path acquired`
	return err
}

// twice: released twice.
func (s *service) twice(ctx context.Context) error {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.slots.Release(1)
	if err := work(ctx); err != nil {
		s.slots.Release(1) // want `s\.slots\.Release\(1\) releases more than the 1 that this path acquired`
		return err
	}
	return nil
}

// deferredTooEarly: deferred before the acquire.
func (s *service) deferredTooEarly(ctx context.Context) error {
	defer s.slots.Release(1) // want `s\.slots\.Release\(1\) also runs if s\.slots\.Acquire failed`
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	return work(ctx)
}

// forgotten: no release on an error path of a Weighted.
func (s *service) forgotten(ctx context.Context) error {
	if err := s.slots.Acquire(ctx, 1); err != nil { // want `what s\.slots\.Acquire\(ctx, 1\) acquires is not released`
		return err
	}
	if err := work(ctx); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	s.slots.Release(1)
	return nil
}

// ignoredWait: an ignored wait.
func (s *service) ignoredWait(ctx context.Context) error {
	s.changed.Wait(ctx, 1) // want `the error of s\.changed\.Wait is ignored`
	return work(ctx)
}

// withoutTheRequest: the context of a request is not used.
func (s *service) withoutTheRequest(w http.ResponseWriter, r *http.Request) {
	ctx := context.Background()
	p, err := s.gate.Acquire(ctx, 1) // want `s\.gate\.Acquire waits with ctx, which never ends`
	if err != nil {
		return
	}
	defer p.Release()
}

// itemOnErrorPath: an item that is not released on the error path.
func (s *service) itemOnErrorPath(ctx context.Context) (int, error) {
	item, err := s.conns.Get(ctx) // want `item is not released`
	if err != nil {
		return 0, err
	}
	if err := work(ctx); err != nil {
		return 0, err
	}
	v := item.Value()
	item.Release()
	return v, nil
}

// onlyTheValue: only the value is returned.
func (s *service) onlyTheValue(ctx context.Context) (int, error) {
	item, err := s.conns.TryGet(ctx) // want `item is not released`
	if err != nil {
		return 0, err
	}
	return item.Value(), nil
}

// ticket: a ticket without Cancel.
func (s *service) ticket(ctx context.Context) error {
	t := s.gate.Request(1) // want `neither t\.Cancel nor t\.Permit is called`
	select {
	case <-t.Ready():
		p, err := t.Permit()
		if err != nil {
			return err
		}
		p.Release()
		return nil
	case <-time.After(time.Second):
		return errors.New("late")
	}
}

// ignoredTry: TryAcquire as a statement.
func (s *service) ignoredTry() {
	s.memory.TryAcquire(1) // want `the result of s\.memory\.TryAcquire is ignored`
	defer s.memory.Release(1)
}

// wrongError: the wrong error is checked.
func (s *service) wrongError(ctx context.Context) error {
	p, err := s.gate.Acquire(ctx, 1) // want `p is not released` `err of s\.gate\.Acquire is never checked`
	err = work(ctx)
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

// inALoop: deferred in a loop.
func (s *service) inALoop(ctx context.Context, jobs []func()) error {
	for _, job := range jobs {
		if err := s.slots.Acquire(ctx, 1); err != nil {
			return err
		}
		defer s.slots.Release(1) // want `this defer keeps what every iteration acquires until the function returns`
		job()
	}
	return nil
}

// overwritten: the permit is overwritten.
func (s *service) overwritten(ctx context.Context) error {
	p, err := s.gate.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		return err
	}
	p, err = s.gate.Acquire(ctx, 2)
	if err != nil {
		return err
	}
	defer p.Release()
	return nil
}

// generic: a generic function.
func generic[T any](ctx context.Context, g sema.Gate, f func() (T, error)) (T, error) {
	p, err := g.Acquire(ctx, 1) // want `p is not released`
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := f()
	if err != nil {
		return v, err
	}
	p.Release()
	return v, nil
}

// inALiteral: a literal that is called at once.
func (s *service) inALiteral(ctx context.Context) error {
	return func() error {
		p, err := s.gate.TryAcquire(ctx, 1) // want `p is not released`
		if err != nil {
			return err
		}
		if p.Weight() > 1 {
			return errors.New("too heavy")
		}
		p.Release()
		return nil
	}()
}

// afterFailure: released after a failure too.
func (s *service) afterFailure(ctx context.Context) error {
	err := s.slots.Acquire(ctx, 2)
	if err == nil {
		err = work(ctx)
	}
	s.slots.Release(2) // want `s\.slots\.Release\(2\) also runs if s\.slots\.Acquire failed`
	return err
}

// mustGet returns what droppedByMust drops.
func (s *service) mustGet(ctx context.Context) pool.Item[int] { // want mustGet:"hands over what it acquired"
	item, err := s.conns.Get(ctx)
	if err != nil {
		panic(err)
	}
	return item
}

func (s *service) droppedByMust(ctx context.Context) int { return s.mustGet(ctx).Value() } // want `the item of s\.mustGet is dropped`

// switchOnTheError: a switch on the error that forgets.
func (s *service) switchOnTheError(ctx context.Context) string {
	p, err := s.gate.TryAcquire(ctx, 1) // want `p is not released`
	switch {
	case errors.Is(err, sema.ErrFull):
		return "full"
	case err != nil:
		return "failed"
	case p.Weight() == 1:
		return "done"
	}
	p.Release()
	return ""
}

// goroutineOnOnePath releases in a goroutine that may not start. No check finds that.
func (s *service) goroutineOnOnePath(ctx context.Context, async bool) error {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	if async {
		go func() {
			defer s.slots.Release(1)
			work(ctx)
		}()
	}
	return nil
}

// kept: the permit of Keep.
func (s *service) kept(ctx context.Context) (int, error) {
	item, err := s.conns.Get(ctx)
	if err != nil {
		return 0, err
	}
	v, _ := item.Keep() // want `the permit of item\.Keep is dropped`
	return v, nil
}

// copiedTooEarly: a Release that is deferred by a value that was copied too early.
func (s *service) copiedTooEarly(ctx context.Context) (err error) {
	var p sema.Permit
	defer p.Release()
	p, err = s.gate.Acquire(ctx, 1) // want `p is not released`
	return err
}

func work(context.Context) error { return nil }
