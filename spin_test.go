package sema_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestSpin_ZeroValueIsABinarySemaphore(t *testing.T) {
	var s sema.Spin
	guarded := 0
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 2000 {
				if err := s.Acquire(t.Context()); err != nil {
					t.Error(err)
				}
				guarded++
				s.Release()
			}
		})
	}
	working.Wait()
	if guarded != 16_000 || s.InUse() != 0 {
		t.Errorf("%d, %d in use", guarded, s.InUse())
	}
}

func TestSpin_KeepsItsCapacityAndRejectsOverRelease(t *testing.T) {
	s := sema.NewSpin(3)
	for range 3 {
		if !s.TryAcquire() {
			t.Fatal("a free permit was not acquired")
		}
	}
	if s.TryAcquire() || s.InUse() != 3 {
		t.Fatal("acquired a fourth permit")
	}
	for range 3 {
		s.Release()
	}
	wantPanic(t, "over-release", s.Release)
	if s.InUse() != 0 || !s.TryAcquire() {
		t.Error("an over-release changed the state")
	}
	wantPanic(t, "NewSpin(0)", func() { sema.NewSpin(0) })
	wantPanic(t, "NewSpin(2^32)", func() { sema.NewSpin(1 << 32) })
}

func TestSpin_WaitsWithoutSpinningForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in a bubble, time passes only while all goroutines block
		var s sema.Spin
		s.TryAcquire()
		time.AfterFunc(time.Second, s.Release)
		wantErr(t, s.Acquire(t.Context()), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, s.Acquire(ctx), context.DeadlineExceeded)
		s.Release()
	})
}

func TestSpin_RejectsRacingOverReleases(t *testing.T) {
	for range 2000 {
		var s sema.Spin
		s.TryAcquire()
		var racing sync.WaitGroup
		for range 3 {
			racing.Go(func() {
				defer func() { recover() }()
				s.Release()
			})
		}
		racing.Wait()
		if s.InUse() != 0 || !s.TryAcquire() {
			t.Fatal("an over-release changed the state")
		}
	}
}

func TestSpin_NilContextIsInvalid(t *testing.T) {
	var s sema.Spin
	var noContext context.Context
	wantErr(t, s.Acquire(noContext), sema.ErrInvalid)
	if s.InUse() != 0 {
		t.Error("took a permit")
	}
	s.TryAcquire()
	wantErr(t, s.Acquire(noContext), sema.ErrInvalid)
}
