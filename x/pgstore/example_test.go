package pgstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/pgstore"
)

// Forty connections for all machines.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "postgres://app@db.example.com/app?sema_schema=limits")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	reports, err := client.Semaphore("reports", fleet.Options{Capacity: 40})
	if err != nil {
		log.Fatal(err)
	}
	permit, err := reports.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println("one of", 40)
}
