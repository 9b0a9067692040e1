package intests

import (
	"errors"
	"testing"

	"github.com/sema-go/sema"
)

func TestSemaphore_IsFull(t *testing.T) {
	s := sema.New(1)
	s.Acquire(t.Context(), 1) // want `the permit of s.Acquire is dropped`
	if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, sema.ErrFull) {
		t.Error(err)
	}
	_, err := s.TryAcquire(t.Context(), 1)
	wantErr(t, err, sema.ErrFull)
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), 2)
		got <- err
	}()
	wantErr(t, <-got, sema.ErrTooLarge)
	p, err := s.TryAcquire(t.Context(), 1)
	wantErr(t, err, sema.ErrFull)
	if p.Weight() != 0 {
		t.Error(p)
	}
	p, err = s.TryAcquire(t.Context(), 1) // want `p is not released on a path`
	NoError(t, err)
	if p.Weight() != 1 {
		t.Error(p)
	}
	if _, err := s.TryAcquire(t.Context(), 1); err != nil { // want `the permit of s.TryAcquire is dropped`
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	if !errors.Is(err, want) {
		t.Error(err)
	}
}

func NoError(t *testing.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
