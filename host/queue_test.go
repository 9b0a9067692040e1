//go:build linux && !sema_portable

package host

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestQueue_WaitsWithoutAPlace checks that a process polls if all places are taken.
func TestQueue_WaitsWithoutAPlace(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	fd := openAsOther(t, sem.file)
	if ok, err := tryLock(fd, exclusive, placeLocks, maxPlaces); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p, err := sem.Acquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	for range 3 {
		go func() {
			p, err := sem.Acquire(context.Background(), 1)
			p.Release()
			got <- err
		}()
	}
	for sem.file.queue.length.Load() != 3 {
		time.Sleep(time.Millisecond)
	}
	p.Release()
	for range 3 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func TestFile_ClearsPlacesOfEndedProcesses(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	f := sem.file
	if err := reserve(f.fd, placesAt, 4*placeSize); err != nil {
		t.Fatal(err)
	}
	f.places[0].ticket.Store(1)
	f.places[0].beat.Store(int64(clock()))
	f.places[1].ticket.Store(2) // has not polled for long
	f.places[2].ticket.Store(3)
	f.places[2].beat.Store(int64(clock()))
	f.head.high.Store(3)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if high := f.head.high.Load(); high != 0 {
		t.Errorf("high mark %d, want 0", high)
	}
}

func TestFile_FirstIsLowestTicketNotStopped(t *testing.T) {
	t.Parallel()
	f := openHere(t, 1).file
	f.timing.skipAfter = 30 * time.Minute
	if err := reserve(f.fd, placesAt, 4*placeSize); err != nil {
		t.Fatal(err)
	}
	for i, p := range []struct {
		ticket uint64
		ago    time.Duration
	}{{7, 0}, {0, 0}, {2, time.Hour}, {5, time.Minute}} {
		f.places[i].ticket.Store(p.ticket)
		f.places[i].beat.Store(int64(clock() - p.ago))
	}
	f.head.high.Store(4)
	if at, ticket := f.first(); at != 3 || ticket != 5 {
		t.Errorf("place %d, ticket %d", at, ticket)
	}
	f.places[2].beat.Store(int64(clock())) // it polls again
	if at, ticket := f.first(); at != 2 || ticket != 2 {
		t.Errorf("place %d, ticket %d", at, ticket)
	}
}

func TestQueue_DoneContextNeverAcquires(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the cause")
	cancel(cause)
	for range 50 {
		if _, err := sem.file.wait(slowDone{ctx}, sem, 1); !errors.Is(err, cause) {
			t.Fatal(err)
		}
	}
	if stats, err := inspectStats(sem); err != nil || stats.InUse != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}

// A slowDone context delays Done, so that the permit is granted before Done is called.
type slowDone struct{ context.Context }

func (s slowDone) Done() <-chan struct{} {
	time.Sleep(2 * time.Millisecond)
	return s.Context.Done()
}

// TestQueue_WakesTheDriverForALateWaiter checks the case in which the driver sleeps on
// behalf of a waiter that left. No release wakes it for the next waiter, because the
// slot is free already.
func TestQueue_WakesTheDriverForALateWaiter(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	sem.file.timing.poll = time.Hour
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for range 11 {
		p, err := sem.Acquire(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		brief, cancel := context.WithTimeout(ctx, time.Millisecond)
		sem.Acquire(brief, 1)
		cancel()
		p.Release()
		runs, err := sem.file.wait(ctx, sem, 1)
		if err != nil {
			t.Fatalf("the driver was not woken: %v", err)
		}
		sem.file.free(runs)
	}
}
