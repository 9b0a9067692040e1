//go:build linux

package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

func TestResize_ShrinkRejectsTooLargeWaiters(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 4)
	p := mustAcquire(t, sem, 4)
	light, heavy := make(chan error, 1), make(chan error, 1)
	wait := func(n int64, ended chan error) {
		_, err := sem.Acquire(context.Background(), n)
		ended <- err
	}
	go wait(1, light)
	awaitStats(t, sem, 4, 1)
	go wait(3, heavy)
	awaitStats(t, sem, 4, 2)
	if err := sem.Resize(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-heavy, sema.ErrTooLarge)
	p.Release()
	if err := <-light; err != nil {
		t.Error(err)
	}
}

// TestResize_ShrinkWhileJoiningRejectsTooLargeWaiter shrinks the semaphore after the
// weight of a caller was checked and before the caller joins the queue.
func TestResize_ShrinkWhileJoiningRejectsTooLargeWaiter(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 4)
	p := mustAcquire(t, sem, 3)
	second, third := make(chan sema.Permit, 1), make(chan sema.Permit, 1)
	go func() { second <- mustAcquire(t, sem, 2) }()
	awaitStats(t, sem, 3, 1)
	go func() { third <- mustAcquire(t, sem, 1) }() // the driver continues
	awaitStats(t, sem, 3, 2)
	observed := openIn(t, dir, name, 4, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind != sema.EventQueued {
			return
		}
		if err := sem.Resize(context.Background(), 2); err != nil {
			t.Error(err)
		}
		p.Release()
		second <- <-second
		time.Sleep(100 * time.Millisecond) // until the driver has processed all of it
	})))
	ended := make(chan error, 1)
	go func() {
		_, err := observed.Acquire(context.Background(), 4)
		ended <- err
	}()
	awaitStats(t, sem, 2, 2)
	(<-second).Release()
	(<-third).Release()
	wantErr(t, <-ended, sema.ErrTooLarge)
}

func TestResize_DebtIsPaidBeforeTheQueueIsServed(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 3)
	var permits []sema.Permit
	for range 3 {
		permits = append(permits, mustAcquire(t, sem, 1))
	}
	served := acquiring(t, sem, 1)
	awaitStats(t, sem, 3, 1)
	if err := sem.Resize(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	for i, p := range permits[:2] {
		p.Release()
		awaitStats(t, sem, int64(2-i), 1)
	}
	select {
	case <-served:
		t.Fatal("the waiter was served although one of one permit is held")
	case <-time.After(100 * time.Millisecond):
	}
	permits[2].Release()
	(<-served).Release()
}

func TestResize_WakesWaitersThatFit(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 1)
	other := startUserWithoutPolling(t, dir, name, 1)
	p := mustAcquire(t, sem, 1)
	for range 11 {
		other.Send("acquire 1")
		awaitStats(t, sem, 1, 1)
		if err := sem.Resize(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		other.Expect("acquired 1")
		other.Send("release")
		other.Expect("released")
		if err := sem.Resize(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	}
	p.Release()
}

func TestSemaphore_CapacityZeroPauses(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 0)
	got := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(context.Background(), 5)
		got <- err
	}()
	awaitStats(t, sem, 0, 1)
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	if err := sem.Resize(context.Background(), 5); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
