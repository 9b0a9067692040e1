package redisstore_test

import (
	"context"
	"log"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/redisstore"
)

// Forty connections that all machines share.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "redis://localhost:6379/0?prefix=shop:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	db, err := client.Semaphore("db", fleet.Options{Capacity: 40})
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(ctx, db, 1, func(ctx context.Context) error {
		return nil // the query; ctx ends when the permit is lost
	})
	if err != nil {
		log.Print(err)
	}
}
