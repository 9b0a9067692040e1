package etcdstore_test

import (
	"context"
	"log"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/etcdstore"
)

// Forty connections to a database, shared by all machines that reach the same
// etcd.
func Example() {
	ctx := context.Background()
	client, err := fleet.Open(ctx, "etcd://app:secret@etcd1:2379,etcd2:2379,etcd3:2379/?prefix=app/&ca=/etc/etcd/ca.pem")
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
