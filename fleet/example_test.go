package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore" // for mem: URLs, too
)

// This example limits a database to forty connections from all machines.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	db, err := client.Semaphore("db", 40)
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

// This example protects a resource: it rejects the writes of a holder that has lost its permit,
// even if the holder has not been notified yet.
func ExampleGuard() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	writers, err := client.Semaphore("writers", 1)
	if err != nil {
		log.Fatal(err)
	}
	var guard fleet.Guard // stored with the resource
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

// This example limits all machines together to a hundred calls per second.
func ExampleRate() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	calls, err := client.Semaphore("calls", 100, fleet.Rate(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		if _, err := calls.TryAcquire(ctx, 1); err != nil { // no Release: permits return by time
			log.Fatal(err)
		}
	}
	_, err = calls.TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, sema.ErrFull))
	// Output: true
}

// This example raises the capacity slowly, so that a database which has just restarted is not
// overloaded.
func ExampleClient_Configure() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	db, err := client.Semaphore("db", 0, fleet.Ramp(10)) // paused; later 10 more permits per second
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) {
		log.Fatal(err)
	}
	if err := client.Configure(ctx, "db", func(c *fleet.Config) { c.Capacity = 40 }); err != nil {
		log.Fatal(err)
	}
	snapshot, err := client.Info(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snapshot.Config.Capacity, snapshot.Effective < 40)
	// Output: 40 true
}

// This example limits each tenant to two concurrent calls, and all tenants together to three.
// It acquires the narrow gate first: a tenant at its cap waits there, and holds no shared
// permit.
func Example_tenantsUnderAWhole() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	all, err := client.Semaphore("api", 3)
	if err != nil {
		log.Fatal(err)
	}
	call := func(tenant string, do func(context.Context) error) error {
		own, err := client.Semaphore("api/"+tenant, 2)
		if err != nil {
			return err
		}
		return sema.Do(ctx, own, 1, func(ctx context.Context) error {
			return sema.Do(ctx, all, 1, do)
		})
	}
	fmt.Println(call("acme", func(ctx context.Context) error { return nil }))
	// Output: <nil>
}

// This example acquires very often, at the speed of a local semaphore. The bound still holds
// for the fleet.
func ExampleMode_pooled() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	cache, err := client.Semaphore("cache", 1000, fleet.ModePooled)
	if err != nil {
		log.Fatal(err)
	}
	for range 100_000 {
		permit, err := cache.Acquire(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		permit.Release()
	}
	fmt.Println(cache.Stats().Batches < 10)
	// Output: true
}

// This example continues with five permits per process while the store does not reply.
func ExampleFailOpen() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	api, err := client.Semaphore("api", 100, fleet.FailOpen(5), fleet.FailOpenAfter(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	permit, err := api.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println(api.Stats().FailedOpen)
	// Output: false
}

// This example serves the clients of a region from a local store. The capacity is global.
func ExampleNewRegion() {
	ctx := context.Background()
	global, err := fleet.Open(ctx, "mem:") // a distant store
	if err != nil {
		log.Fatal(err)
	}
	defer global.Close(ctx)
	region := fleet.NewRegion(memstore.New(), global, 0)
	client := fleet.New(region) // one for each process in the region
	defer client.Close(ctx)
	db, err := client.Semaphore("db", 40)
	if err != nil {
		log.Fatal(err)
	}
	permit, err := db.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	leased, err := global.Info(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(leased.InUse >= 1) // the permits in use, and a reserve
	// Output: true
}

// This example prints the holders of a semaphore, and would print them again after each change.
func ExampleClient_Watch() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	gpus, err := client.Semaphore("gpus", 8, fleet.Labels(map[string]string{"job": "train-7"}))
	if err != nil {
		log.Fatal(err)
	}
	permit, err := gpus.Acquire(ctx, 4)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	for info, err := range client.Watch(ctx, "gpus", time.Second) {
		if err != nil {
			log.Fatal(err)
		}
		for _, holder := range info.Holders {
			fmt.Println(holder.Weight, holder.Labels["job"])
		}
		break
	}
	// Output: 4 train-7
}

// This example acquires two of eight licence seats, which all machines share. The numbers
// of the permit are the seats.
func ExampleNumbered() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	seats, err := client.Semaphore("seats", 8, fleet.Numbered())
	if err != nil {
		log.Fatal(err)
	}
	permit, err := seats.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println(permit.Slots())
	// Output: [0 1]
}
