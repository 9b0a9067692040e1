package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/fleet/memstore" // for mem: URLs
	"github.com/sema-go/sema/fleet/protocol"
)

// Forty connections to a database, however many machines want them.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	db, err := client.Semaphore("db", fleet.Options{Capacity: 40})
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(ctx, db, 1, func(ctx context.Context) error { // ctx ends when the permit is lost
		fmt.Println("querying")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// querying
	// <nil>
}

// A resource that refuses writes of those who have lost their permit, though
// they may not know it yet.
func ExampleGuard() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	writers, err := client.Semaphore("writers", fleet.Options{Capacity: 1})
	if err != nil {
		log.Fatal(err)
	}
	var guard fleet.Guard // lives with the resource
	write := func(p sema.Permit) error {
		lease, _ := fleet.LeaseOf(p)
		return guard.Admit(lease.Fence)
	}
	first, err := writers.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(write(first))
	first.Release()
	second, err := writers.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release()
	fmt.Println(write(second))
	fmt.Println(errors.Is(write(first), sema.ErrLost))
	// Output:
	// <nil>
	// <nil>
	// true
}

// A hundred calls a second, among all machines.
func ExampleOptions_rate() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	calls, err := client.Semaphore("calls", fleet.Options{Capacity: 100, Rate: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		if _, err := calls.TryAcquire(ctx, 1); err != nil { // nothing to release: time does it
			log.Fatal(err)
		}
	}
	_, err = calls.TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrFull))
	// Output: true
}

// A capacity that rises slowly, so that a database just restarted is not
// overrun.
func ExampleClient_Configure() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	db, err := client.Semaphore("db", fleet.Options{Capacity: 0, Ramp: 10}) // paused; ten a second
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) {
		log.Fatal(err)
	}
	if err := client.Configure(ctx, "db", func(c *protocol.Config) { c.Capacity = 40 }); err != nil {
		log.Fatal(err)
	}
	snapshot, err := client.Inspect(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snapshot.Config.Capacity, snapshot.Effective < 40)
	// Output: 40 true
}
