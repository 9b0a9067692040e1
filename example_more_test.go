package sema_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sema-go/sema"
)

// An expiringLease can be lost before it is released, like a lease of a fleet semaphore.
type expiringLease struct{ expired chan struct{} }

func (m expiringLease) Release()              {}
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

func ExampleTicket_Cancel() {
	s := sema.New(1)
	ticket := s.Request(1)
	<-ticket.Ready()
	ticket.Cancel() // granted but never taken: the permit is released
	fmt.Println(s.Stats().InUse)
	// Output: 0
}

func ExampleMaxWaiters() {
	s := sema.New(1, sema.MaxWaiters(0)) // no caller waits
	held, _ := s.Acquire(context.Background(), 1)
	defer held.Release()
	_, err := s.Acquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrQueueFull))
	// Output: true
}

// A request that does not fit now may fit after a Resize.
func ExampleSemaphore_Resize_parkOversize() {
	s := sema.New(2, sema.ParkOversize)
	ticket := s.Request(5)
	s.Resize(8)
	<-ticket.Ready()
	permit, err := ticket.Permit()
	fmt.Println(permit.Weight(), err)
	permit.Release()
	// Output: 5 <nil>
}

// Unfair saves the goroutine switch of each hand-off. LIFO serves the newest waiter
// first under overload.
func ExampleNew_orders() {
	throughput := sema.New(8, sema.Unfair)
	freshest := sema.New(8, sema.LIFO)
	for _, s := range []*sema.Semaphore{throughput, freshest} {
		sema.Do(context.Background(), s, 1, func(context.Context) error { return nil })
	}
	fmt.Println(throughput.Stats().Free, freshest.Stats().Free)
	// Output: 8 8
}

// Two semaphores acquired in both orders are reported before they deadlock.
func ExampleDiagnose() {
	observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventInverted {
			fmt.Println(strings.SplitN(e.Report, ";", 2)[0])
		}
	}))
	accounts := sema.New(1, sema.Name("accounts"), sema.Diagnose(sema.DiagnoseFull), observe)
	ledger := sema.New(1, sema.Name("ledger"), sema.Diagnose(sema.DiagnoseFull), observe)
	transfer := func(first, second *sema.Semaphore) {
		a, _ := first.Acquire(context.Background(), 1)
		defer a.Release()
		b, _ := second.Acquire(context.Background(), 1)
		defer b.Release()
	}
	transfer(accounts, ledger)
	transfer(ledger, accounts)
	// Output: acquire order inverted: ledger → accounts here, but accounts → ledger elsewhere
}
