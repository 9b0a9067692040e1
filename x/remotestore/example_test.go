package remotestore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/remotestore"
)

// Example bounds the connections of all machines that reach one of two servers.
func Example() {
	ctx := context.Background()
	// SEMA_STORE=semas://sema1,sema2?token_file=/run/secrets/sema
	client, err := fleet.Open(ctx, os.Getenv("SEMA_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	db, err := client.Semaphore("db", 40)
	if err != nil {
		log.Fatal(err)
	}
	err = sema.Do(ctx, db, 1, func(ctx context.Context) error { // ctx ends when the permit is lost
		info, err := client.Info(ctx, "db")
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
