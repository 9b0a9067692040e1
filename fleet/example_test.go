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

// Forty connections to a database, however many machines want them.
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

// A resource that refuses writes of those who have lost their permit, though
// they may not know it yet.
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
	db, err := client.Semaphore("db", 0, fleet.Ramp(10)) // paused; ten a second
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

// Each tenant may make two calls at a time, all together three. The narrow gate
// comes first: a tenant that is at its cap waits there, and holds nothing of
// what all share.
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

// Permits at the speed of a local semaphore, for what is acquired very often.
// The bound is that of the fleet.
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

// When the engine does not answer, go on with five permits in each process.
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

// A region's clients are served nearby; the capacity is that of the whole.
func ExampleNewRegion() {
	ctx := context.Background()
	global, err := fleet.Open(ctx, "mem:") // far away
	if err != nil {
		log.Fatal(err)
	}
	defer global.Close(ctx)
	region := fleet.NewRegion(memstore.New(), global, 0)
	client := fleet.New(region) // as each client in the region has one
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
	fmt.Println(leased.InUse >= 1) // what is used, and some to have ready
	// Output: true
}

// Who holds, who waits, and what changes.
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
