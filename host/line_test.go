//go:build linux && !sema_portable

package host

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// With every place taken, waiting goes on by looking.
func TestWaitingWithoutAPlace(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	fd := beside(t, sem.file)
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
	for sem.file.line.length.Load() != 3 {
		time.Sleep(time.Millisecond)
	}
	p.Release()
	for range 3 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func TestPlacesOfTheDeadAreCleared(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	f := sem.file
	if err := reserve(f.fd, placesAt, 4*placeSize); err != nil {
		t.Fatal(err)
	}
	f.places[0].ticket.Store(1)
	f.places[1].ticket.Store(2)
	f.places[1].passed.Store(1)
	f.places[2].ticket.Store(3)
	f.head.high.Store(3)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if high := f.head.high.Load(); high != 0 {
		t.Errorf("the line still reaches to %d", high)
	}
}

func TestOnlyWhoShowsNoSignOfLifeIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{places: new([maxPlaces]place)}
		var w watch
		pass := func(ticket uint64) bool { return w.passOver(f, 0, ticket) }
		for range 10 {
			if pass(1) {
				t.Fatal("a place that beats was passed over")
			}
			time.Sleep(poll)
			f.places[0].beat.Add(1)
		}
		for ticket := uint64(2); ticket < 12; ticket++ {
			if pass(ticket) {
				t.Fatal("a place that moves on was passed over")
			}
			time.Sleep(poll)
		}
		if pass(20) {
			t.Fatal("a place was passed over at first sight")
		}
		time.Sleep(passAfter - 1)
		if pass(20) || f.places[0].passed.Load() != 0 {
			t.Fatal("a place was passed over early")
		}
		time.Sleep(time.Nanosecond)
		if !pass(20) || f.places[0].passed.Load() != 1 {
			t.Error("a dead place was not passed over")
		}
	})
}

// The driver may be asleep for a waiter who left when the next one comes, whom
// no release will wake because the slot is free already.
func TestDriverIsRousedForALateWaiter(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	var took []time.Duration
	for range 11 {
		p, err := sem.Acquire(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		sem.Acquire(ctx, 1)
		cancel()
		p.Release()
		start := time.Now()
		runs, err := sem.file.wait(context.Background(), sem, 1)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
		sem.file.free(runs)
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > poll/4 {
		t.Errorf("it took %v", median)
	}
}
