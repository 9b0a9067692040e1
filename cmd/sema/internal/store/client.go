package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sema-go/sema/fleet"
)

// closeTimeout bounds the last round trip to a store.
const closeTimeout = 5 * time.Second

// CloseClient releases the permits of a client and closes it, also if the command's context has
// ended.
func CloseClient(client *fleet.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return client.Close(ctx, fleet.CloseRelease)
}

// ScratchName returns a name for a semaphore that no other program uses. It contains the name of
// the command.
func ScratchName(command string) string {
	return fmt.Sprintf("sema-%s-%08x", command, rand.Uint32())
}
