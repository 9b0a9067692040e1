package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/pgstore"
)

// Example bounds the reports of all machines that share a PostgreSQL.
func Example() {
	ctx := context.Background()
	// SEMA_STORE=postgres://app@db.example.com/app?sema_schema=limits
	client, err := fleet.Open(ctx, os.Getenv("SEMA_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	reports, err := client.Semaphore("reports", 40)
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(ctx, reports, 1, func(ctx context.Context) error { // ctx ends when the permit is lost
		info, err := client.Info(ctx, "reports")
		if err != nil {
			return err
		}
		fmt.Println(info.InUse, "of", info.Config.Capacity)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
