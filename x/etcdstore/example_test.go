package etcdstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/etcdstore"
)

// Example bounds the connections of all machines that reach the same etcd.
func Example() {
	ctx := context.Background()
	// SEMA_STORE=etcd://app:secret@etcd1:2379,etcd2:2379,etcd3:2379/?prefix=app/&ca=/etc/etcd/ca.pem
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
