package wfq_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// Tenants share the connections to a database. A paying tenant gets four times as much as
// another one when both wait.
func Example() {
	db := wfq.New(40, sema.Name("db"), sema.MaxWait(5*time.Second))
	db.Set("paying", wfq.Share{Weight: 4})

	query := func(ctx context.Context, tenant string) error {
		permit, err := db.Class(tenant).Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer permit.Release()
		return nil // query the database
	}
	fmt.Println(query(context.Background(), "paying"), query(context.Background(), "someone"))
	// Output: <nil> <nil>
}

// Classes have guarantees and bounds: free users use at most 200 of 1000, paid ones get at
// least 500 when they need them, internal ones 300.
func ExampleQueue_Set() {
	q := wfq.New(1000)
	q.Set("free", wfq.Share{Max: 200})
	q.Set("paid", wfq.Share{Min: 500})
	q.Set("internal", wfq.Share{Min: 300})

	permit, err := q.Class("free").TryAcquire(context.Background(), 200)
	fmt.Println(permit.Weight(), err)
	_, err = q.Class("free").TryAcquire(context.Background(), 1)
	fmt.Println(errors.Is(err, sema.ErrFull))
	// Output:
	// 200 <nil>
	// true
}

// Tenants that are not known in advance get the default share.
func ExampleQueue_Default() {
	q := wfq.New(100)
	q.Default(wfq.Share{Max: 10, MaxWaiters: 50})
	fmt.Println(q.Class("tenant 4711").Share().Max)
	// Output: 10
}

// A middleware puts the class into the context of a request. What acquires later need not
// know about classes.
func ExampleWith() {
	q := wfq.New(10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := wfq.With(r.Context(), r.Header.Get("Tenant"))
		permit, err := q.Acquire(ctx, 1)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer permit.Release()
		fmt.Println(wfq.ClassOf(ctx), "uses", q.Class(wfq.ClassOf(ctx)).Stats().InUse)
	})
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Tenant", "blue")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	// Output: blue uses 1
}

// Background work never delays requests, and is served at last: after a minute it is
// raised by a tier.
func ExampleAging() {
	q := wfq.New(10, wfq.Aging(time.Minute))
	q.Set("background", wfq.Share{Tier: -1})
	permit, err := q.Class("background").Acquire(context.Background(), 1)
	fmt.Println(permit.Weight(), err)
	permit.Release()
	// Output: 1 <nil>
}

// A company's capacity is shared among departments, and that of a department among its
// teams.
func ExampleOver() {
	company := wfq.New(256)
	company.Set("research", wfq.Share{Weight: 2})
	research := wfq.Over(company.Class("research"), 64)
	research.Set("vision", wfq.Share{Weight: 3})

	permit, _ := research.Class("vision").Acquire(context.Background(), 8)
	fmt.Println(company.Stats().InUse, research.Stats().InUse)
	permit.Release()
	fmt.Println(company.Stats().InUse, research.Stats().InUse)
	// Output:
	// 8 8
	// 0 0
}

// A runway: one aircraft takes off every 90 s, those with little fuel first.
func ExampleOver_rate() {
	runway := wfq.Over(rate.New(1, 90*time.Second), 1)
	runway.Set("low fuel", wfq.Share{Tier: 1})
	_, err := runway.Class("low fuel").Acquire(context.Background(), 1) //semavet:ignore permits of a rate are spent
	fmt.Println(err)
	// Output: <nil>
}

// A tenant's calls to an API are fair among tenants: a rate of which each tenant gets an
// equal share.
func ExampleOver_fairRate() {
	api := wfq.Over(rate.New(100, time.Second), 1, sema.Name("api"))
	for _, tenant := range []string{"a", "b"} {
		if _, err := api.Class(tenant).Acquire(context.Background(), 1); err != nil { //semavet:ignore permits of a rate are spent
			fmt.Println(err)
		}
	}
	fmt.Println(api.Stats().Acquired)
	// Output: 2
}

// A request whose deadline is earlier than its expected turn is rejected at once.
func ExampleClass_ExpectedWait() {
	q := wfq.New(1)
	tenant := q.Class("tenant")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok && tenant.ExpectedWait(1) > time.Until(deadline) {
		fmt.Println("shed")
		return
	}
	fmt.Println("waits")
	// Output: waits
}

// A caller that holds a permit of one queue and waits at another inherits the tier of
// those that wait for it. The context carries the permits that it holds.
func ExampleClass_Acquire_inheritance() {
	lock, workers := wfq.New(1), wfq.New(4)
	err := sema.Do(context.Background(), lock.Class("low"), 1, func(ctx context.Context) error {
		permit, err := workers.Class("low").Acquire(ctx, 1) // in the tier of those that wait for lock
		if err != nil {
			return err
		}
		defer permit.Release()
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}

// Holders of the lock wait for workers in tier 5 or a higher one, whether or not others wait
// for the lock.
func ExampleCeiling() {
	lock, workers := wfq.New(1, wfq.Ceiling(5)), wfq.New(4)
	err := sema.Do(context.Background(), lock.Class("low"), 1, func(ctx context.Context) error {
		permit, err := workers.Class("low").Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer permit.Release()
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}

// When as many callers wait as may, one of a higher tier displaces the newest of the lowest.
func Example_displacement() {
	q := wfq.New(1, sema.MaxWaiters(1))
	q.Set("high", wfq.Share{Tier: 1})
	held, _ := q.Class("low").Acquire(context.Background(), 1)

	displaced, served := make(chan error), make(chan error)
	go func() {
		permit, err := q.Class("low").Acquire(context.Background(), 1)
		permit.Release()
		displaced <- err
	}()
	for q.Stats().Waiters == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		permit, err := q.Class("high").Acquire(context.Background(), 1)
		permit.Release()
		served <- err
	}()
	fmt.Println(errors.Is(<-displaced, sema.ErrQueueFull))
	held.Release()
	fmt.Println(<-served)
	// Output:
	// true
	// <nil>
}

// Under overload, CoDel rejects requests that have waited for too long to be useful,
// instead of serving all of them late.
func ExampleOrder() {
	q := wfq.New(10)
	q.Set("requests", wfq.Share{Order: wfq.CoDel})
	_, err := q.Class("requests").Acquire(context.Background(), 1) //semavet:ignore an example without work
	if errors.Is(err, wfq.ErrOverloaded) {
		fmt.Println("try again later")
	}
	fmt.Println(q.Class("requests").Share().Order)
	// Output: CoDel
}

// An operator sees what each tenant uses.
func ExampleQueue_Classes() {
	q := wfq.New(10)
	permit, _ := q.Class("blue").Acquire(context.Background(), 3)
	for name, st := range q.Classes() {
		fmt.Printf("%s: %d of %d in use, %d waiting\n", name, st.InUse, st.Capacity, st.Waiters)
	}
	permit.Release()
	// Output: blue: 3 of 10 in use, 0 waiting
}
