package sema_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
)

// Every copy of a permit is the same permit.
func ExamplePermit_Release() {
	s := sema.New(2)
	permit, _ := s.Acquire(context.Background(), 1)
	alias := permit
	permit.Release()
	alias.Release() // has no effect
	fmt.Println(s.Stats().Free)
	// Output: 2
}

func ExamplePermit_Split() {
	s := sema.New(10)
	batch, _ := s.Acquire(context.Background(), 10)
	first, rest, err := batch.Split(4) // two parts that are released at different times
	fmt.Println(first.Weight(), rest.Weight(), err)
	first.Release()
	fmt.Println(s.Stats().Free)
	rest.Release()
	// Output:
	// 4 6 <nil>
	// 4
}

func ExamplePermit_Context() {
	s := sema.New(1)
	permit, _ := s.Acquire(context.Background(), 1)
	defer permit.Release()
	ctx, cancel := permit.Context(context.Background())
	defer cancel()
	// Use ctx for the work: it ends if the permit is lost, as a fleet lease can be. What
	// is acquired with it is known to be acquired by this holder.
	fmt.Println(len(sema.Held(ctx)), ctx.Err())
	// Output: 1 <nil>
}

// A custom gate that grants no permits on weekends.
func ExampleNewPermit() {
	gate := officeHours{sema.New(3), time.Saturday}
	_, err := gate.Acquire(context.Background(), 1)
	fmt.Println(err)
	gate.today = time.Monday
	err = sema.Do(context.Background(), gate, 1, func(context.Context) error {
		fmt.Println("at work")
		return nil
	})
	fmt.Println(err)
	// Output:
	// closed on Saturday
	// at work
	// leaving
	// <nil>
}

type officeHours struct {
	inner *sema.Semaphore
	today time.Weekday
}

func (g officeHours) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	if g.today == time.Saturday || g.today == time.Sunday {
		return sema.Permit{}, fmt.Errorf("closed on %v", g.today)
	}
	p, err := g.inner.Acquire(ctx, n)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(n, officeLease{p}), nil
}

func (g officeHours) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}

type officeLease struct{ inner sema.Permit }

func (d officeLease) Release() {
	fmt.Println("leaving")
	d.inner.Release()
}

// Do acquires a permit, runs the function and releases the permit, whatever happens.
func ExampleDo() {
	s := sema.New(1)
	err := sema.Do(context.Background(), s, 1, func(ctx context.Context) error {
		return errors.New("query failed")
	})
	fmt.Println(err, s.Stats().InUse)
	// Output: query failed 0
}

// An expiringLease can be lost before it is released, like a lease of a fleet semaphore.
type expiringLease struct{ expired chan struct{} }

func (m expiringLease) Release() {}

func (m expiringLease) Lost() <-chan struct{} { return m.expired }

func (m expiringLease) Err() error {
	select {
	case <-m.expired:
		return sema.ErrLost
	default:
		return nil
	}
}

func ExamplePermit_Lost() {
	lease := expiringLease{make(chan struct{})}
	permit := sema.NewPermit(1, lease)
	close(lease.expired)
	select {
	case <-permit.Lost():
		fmt.Println("stop:", permit.Err())
	case <-time.After(time.Minute):
	}
	// Output: stop: sema: lease lost
}

func ExamplePermit_Err() {
	s := sema.New(1)
	permit, _ := s.Acquire(context.Background(), 1)
	defer permit.Release()
	fmt.Println(permit.Err(), permit.Lost() == nil) // a local permit cannot be lost
	// Output: <nil> true
}

func ExamplePermit_Held() {
	s := sema.New(1)
	permit, _ := s.Acquire(context.Background(), 1)
	fmt.Println(permit.Held())
	permit.Release()
	fmt.Println(permit.Held())
	// Output:
	// true
	// false
}

func ExampleHeld() {
	db := sema.New(10, sema.Name("db"))
	sema.Do(context.Background(), db, 3, func(ctx context.Context) error {
		for _, permit := range sema.Held(ctx) {
			fmt.Println("holding", permit.Weight())
		}
		return nil
	})
	// Output: holding 3
}
