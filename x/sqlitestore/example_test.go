package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sema-go/sema/fleet"
	_ "github.com/sema-go/sema/x/sqlitestore"
)

// A semaphore whose state survives the process.
func Example() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)

	ctx := context.Background()
	client, err := fleet.Open(ctx, "sqlite://"+filepath.ToSlash(filepath.Join(directory, "fleet.db"))+"?prefix=reports:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	exports, err := client.Semaphore("exports", 2)
	if err != nil {
		log.Fatal(err)
	}
	permit, err := exports.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()

	info, err := client.Info(ctx, "exports")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.InUse, "of", info.Config.Capacity)
	// Output: 1 of 2
}
