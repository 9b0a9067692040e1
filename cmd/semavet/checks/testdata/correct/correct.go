// Package correct uses Sema as programs do: nothing is reported.
package correct

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"golang.org/x/sync/semaphore"
)

type service struct {
	gate   *sema.Semaphore
	memory *sema.Weighted

	workers, reserved, waited, requests, inFlight, bytes, exclusive, enabled, probes, halves, turns, pause, locals, moved *semaphore.Weighted

	conns   *pool.Pool[int]
	changed *sema.Counter
	current sema.Permit
	mu      sync.Mutex
}

// goroutine: a goroutine releases what its starter acquired.
func (s *service) goroutine(ctx context.Context, jobs []func()) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, job := range jobs {
		p, err := s.gate.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		wg.Add(1)
		go func(p sema.Permit) {
			defer wg.Done()
			defer p.Release()
			job()
		}(p)
	}
	return nil
}

// lock: a permit in a field.
func (s *service) lock(ctx context.Context) error {
	p, err := s.gate.Acquire(ctx, 1)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = p
	return nil
}

func (s *service) unlock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Release()
	s.current = sema.Permit{}
}

// enter: a release function for the caller.
func (s *service) enter(ctx context.Context) (leave func(), err error) {
	p, err := s.gate.Acquire(ctx, 1)
	if err != nil {
		return nil, err
	}
	return p.Release, nil
}

// labelled: labelled loops.
func (s *service) labelled(ctx context.Context, rows [][]int) error {
outer:
	for _, row := range rows {
		p, err := s.gate.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		for _, n := range row {
			switch {
			case n < 0:
				p.Release()
				continue outer
			case n == 0:
				p.Release()
				break outer
			}
		}
		p.Release()
	}
	return nil
}

// selects: select.
func (s *service) selects(ctx context.Context, done <-chan struct{}) error {
	t := s.gate.Request(1)
	defer t.Cancel()
	select {
	case <-t.Ready():
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	p, err := t.Permit()
	if err != nil {
		return err
	}
	defer p.Release()
	return nil
}

// switches: a switch with fallthrough.
func (s *service) switches(ctx context.Context, mode int) error {
	p, err := s.gate.TryAcquire(ctx, 1)
	switch {
	case err == nil:
		defer p.Release()
	case errors.Is(err, sema.ErrFull) && mode > 0:
		fallthrough
	default:
		return err
	}
	return nil
}

// must: a panic instead of an error.
func (s *service) must(ctx context.Context) {
	p, err := s.gate.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	defer p.Release()
}

// acquireFor: t.Cleanup.
func acquireFor(t testing.TB, g sema.Gate) {
	p, err := g.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
}

// open: named results and a deferred literal that releases on failure only.
func (s *service) open(ctx context.Context) (p sema.Permit, err error) {
	p, err = s.gate.Acquire(ctx, 1)
	if err != nil {
		return sema.Permit{}, err
	}
	defer func() {
		if err != nil {
			p.Release()
		}
	}()
	err = work(ctx)
	return p, err
}

// with: generics.
func with[T any](ctx context.Context, g sema.Gate, f func(context.Context) (T, error)) (T, error) {
	p, err := g.Acquire(ctx, 1)
	if err != nil {
		var zero T
		return zero, err
	}
	defer p.Release()
	return f(ctx)
}

// methodValue: method values.
func methodValue(ctx context.Context, g sema.Gate) error {
	acquire := g.Acquire
	p, err := acquire(ctx, 1)
	if err != nil {
		return err
	}
	release := p.Release
	defer release()
	return work(ctx)
}

// retry: a retry with a timeout for each attempt.
func (s *service) retry(ctx context.Context) (p sema.Permit, err error) {
	for range 3 {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		p, err = s.gate.Acquire(attempt, 1)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return p, err
		}
	}
	return sema.Permit{}, err
}

// query: a pool item, discarded if it is broken.
func (s *service) query(ctx context.Context) (err error) {
	item, err := s.conns.Get(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			item.Discard()
			return
		}
		item.Release()
	}()
	return work(ctx)
}

// keep: an item that is kept.
func (s *service) keep(ctx context.Context) (int, sema.Permit, error) {
	item, err := s.conns.TryGet(ctx)
	if err != nil {
		return 0, sema.Permit{}, err
	}
	v, p := item.Keep()
	return v, p, nil
}

// joined: an error that is joined later.
func (s *service) joined(ctx context.Context) error {
	p, err := s.gate.Acquire(ctx, 1)
	err = errors.Join(err, work(ctx))
	p.Release()
	return err
}

// watch: a wait in a loop that ends with the context.
func (s *service) watch(ctx context.Context, f func()) {
	for s.changed.Wait(ctx, 1) == nil {
		f()
	}
}

// async: a wait whose error another goroutine gets.
func (s *service) async(ctx context.Context) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.changed.Wait(ctx, 1) }()
	return result
}

// several: permits in a slice and in a map.
func (s *service) several(ctx context.Context, n int) (permits []sema.Permit, err error) {
	byNumber := map[int]sema.Permit{}
	defer func() {
		for _, p := range byNumber {
			p.Release()
		}
	}()
	for i := range n {
		p, err := s.gate.Acquire(ctx, 1)
		if err != nil {
			for _, p := range permits {
				p.Release()
			}
			return nil, err
		}
		if i%2 == 0 {
			byNumber[i] = p
			continue
		}
		permits = append(permits, p)
	}
	return permits, nil
}

// split: a split permit.
func split(ctx context.Context, g sema.Gate) error {
	p, err := g.Acquire(ctx, 3)
	if err != nil {
		return err
	}
	first, rest, err := p.Split(1)
	if err != nil {
		p.Release()
		return err
	}
	go func() {
		defer rest.Release()
		work(ctx)
	}()
	defer first.Release()
	return work(ctx)
}

// guarded: recover around a worker that releases itself.
func (s *service) guarded(ctx context.Context, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	p, err := s.gate.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	func() {
		defer p.Release()
		f()
	}()
	return nil
}

// session: an item that a struct owns.
type session struct {
	item pool.Item[int]
}

func (s *service) session(ctx context.Context) (*session, error) {
	item, err := s.conns.Get(ctx)
	if err != nil {
		return nil, err
	}
	if item.Value() == 0 {
		item.Discard()
		return nil, errors.New("broken")
	}
	return &session{item: item}, nil
}

func (s *session) close() { s.item.Release() }

// borrow: an item that a goroutine releases when the context ends.
func (s *service) borrow(ctx context.Context) (int, error) {
	item, err := s.conns.Get(ctx)
	if err != nil {
		return 0, err
	}
	context.AfterFunc(ctx, item.Release)
	return item.Value(), nil
}

func work(context.Context) error { return nil }
