package sema_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sema-go/sema"
)

// The counters only grow, so that the rate of change of each can be graphed.
func ExampleSemaphore_Stats_counters() {
	s := sema.New(2)
	ctx := context.Background()
	sema.Do(ctx, s, 1, func(context.Context) error {
		s.TryAcquire(ctx, 2) //semavet:ignore the semaphore is full
		return nil
	})
	fmt.Printf("%+v\n", s.Stats().Counts)
	// Output:
	// {Acquired:1 Waited:0 TimedOut:0 Cancelled:0 Rejected:1 WaitTime:0s}
}

func ExampleSemaphore_Stats() {
	s := sema.New(8)
	permit, _ := s.Acquire(context.Background(), 6)
	defer permit.Release()
	st := s.Stats()
	fmt.Printf("%d of %d in use, %d waiting\n", st.InUse, st.Capacity, st.Waiters)
	// Output: 6 of 8 in use, 0 waiting
}

func ExampleObserve() {
	waited := 0
	s := sema.New(1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventRejected {
			waited++
			fmt.Println(e.Kind, e.Weight)
		}
	})))
	s.TryAcquire(context.Background(), 5)
	// Output: rejected 5
}

// LogTo logs exhaustion and permits held too long, for operators.
func ExampleLogTo() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	db := sema.New(1, sema.Name("db"), sema.Observe(sema.LogTo(logger)))
	for range 1000 {
		permit, _ := db.Acquire(context.Background(), 1)
		permit.Release()
	}
	// Output:
	// level=WARN msg="sema: exhausted" semaphore=db
}

// WarnHold reports a permit that is held for longer than its work should take.
func ExampleWarnHold() {
	reported := make(chan struct{})
	s := sema.New(1, sema.Name("db"), sema.WarnHold(time.Millisecond),
		sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventOverheld {
				fmt.Println(e.Kind, "at", strings.Split(e.Site, ":")[0] != "")
				close(reported)
			}
		})))
	permit, _ := s.Acquire(context.Background(), 1)
	<-reported // the permit is still held
	permit.Release()
	// Output: overheld at true
}

// A debug page can list the held permits and their age.
func ExampleHolders() {
	s := sema.New(2, sema.Name("example"), sema.Diagnose(sema.DiagnoseFull))
	permit, _ := s.Acquire(context.Background(), 1)
	for _, h := range sema.Holders() {
		if h.Name == "example" {
			fmt.Println(h.Name, h.Weight, h.Site != "", h.Age >= 0)
		}
	}
	permit.Release()
	// Output: example 1 true true
}

// Contention lists the call sites that wait, the longest first.
func ExampleContention() {
	quiet := sema.ObserverFunc(func(sema.Event) {}) // without an observer, reports are logged
	s := sema.New(1, sema.Diagnose(sema.DiagnoseFull), sema.MaxWait(time.Millisecond), sema.Observe(quiet))
	held, _ := s.Acquire(context.Background(), 1)
	s.Acquire(context.Background(), 1)
	held.Release()
	worst := sema.Contention()[0]
	fmt.Println(worst.Waits > 0, worst.Total > 0, worst.Site != "")
	// Output: true true true
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
