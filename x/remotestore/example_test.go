package remotestore_test

import (
	"context"
	"log"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/remotestore"
)

// Forty connections to a database, shared by all machines that reach one of two
// servers.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "semas://sema1,sema2?token_file=/run/secrets/sema")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	db, err := client.Semaphore("db", fleet.Options{Capacity: 40})
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(ctx, db, 1, func(ctx context.Context) error {
		return nil // ctx ends when the permit is lost
	})
	if err != nil {
		log.Fatal(err)
	}
}
