// Package recovered has functions whose panics are recovered.
package recovered

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"golang.org/x/sync/semaphore"
)

type server struct {
	db       *sema.Semaphore
	conns    *pool.Pool[int]
	weighted *sema.Weighted
	theirs   *semaphore.Weighted
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	permit, err := s.db.Acquire(r.Context(), 1)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	work(r.Context())
	permit.Release() // want `permit.Release is not deferred: a panic in work in line 27 would skip it, and net/http recovers; defer it after the acquire`
}

func (s *server) inALoop(_ http.ResponseWriter, r *http.Request) {
	for range 3 {
		item, err := s.conns.Get(r.Context())
		if err != nil {
			return
		}
		work(r.Context())
		item.Release() // want `item.Release is not deferred: a panic in work in line 37 would skip it, and net/http recovers; move the loop body into a function that defers it`
	}
}

func (s *server) byWeight(_ http.ResponseWriter, r *http.Request) {
	if err := s.weighted.Acquire(r.Context(), 2); err != nil {
		return
	}
	work(r.Context())
	s.weighted.Release(2) // want `s.weighted.Release is not deferred: a panic in work`
	if !s.theirs.TryAcquire(1) {
		return
	}
	work(r.Context())
	s.theirs.Release(1) // want `s.theirs.Release is not deferred`
}

func (s *server) recovers(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	permit, err := s.db.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	work(ctx)
	permit.Release() // want `permit.Release is not deferred: a panic in work in line 65 would skip it, and the function recovers`
	return nil
}

// quiet calls nothing that panics, or defers.
func (s *server) quiet(w http.ResponseWriter, r *http.Request) {
	permit, err := s.db.Acquire(r.Context(), 1)
	if err != nil {
		work(r.Context())
		return
	}
	fmt.Println(len(r.URL.Path), int64(1))
	permit.Release()
	other, err := s.db.Acquire(r.Context(), 1)
	if err != nil {
		return
	}
	defer other.Release()
	work(r.Context())
	other.Release() // earlier than the function's end
	if s.weighted.Acquire(r.Context(), 1) != nil {
		return
	}
	defer func() { s.weighted.Release(1) }()
	work(r.Context())
	third, err := s.db.Acquire(r.Context(), 1)
	if err != nil {
		return
	}
	go func() {
		work(context.Background())
		third.Release()
	}()
}

func (s *server) calls(w http.ResponseWriter, r *http.Request) {
	if err := s.query(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	go s.later(context.Background())
}

// query runs in a handler.
func (s *server) query(ctx context.Context) error {
	permit, err := s.db.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	work(ctx)
	permit.Release() // want `permit.Release is not deferred: a panic in work in line 114 would skip it, and net/http recovers`
	return s.again(ctx)
}

func (s *server) again(ctx context.Context) (err error) {
	defer func() { recover() }()
	return s.inner(ctx)
}

func (s *server) inner(ctx context.Context) error {
	item, err := s.conns.Get(ctx)
	if err != nil {
		return err
	}
	work(ctx)
	item.Discard() // want `item.Discard is not deferred: a panic in work in line 129 would skip it, and its caller again recovers`
	return nil
}

// later runs in a goroutine of its own, where a panic ends the process.
func (s *server) later(ctx context.Context) {
	permit, err := s.db.Acquire(ctx, 1)
	if err != nil {
		return
	}
	work(ctx)
	permit.Release()
}

// ends calls no recover: a panic ends the process.
func (s *server) ends(ctx context.Context) error {
	permit, err := s.db.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	work(ctx)
	permit.Release()
	go func() {
		defer func() { recover() }()
	}()
	return nil
}

func work(context.Context) {}
