// Command background waits without an end in all its functions.
package main

import (
	"context"

	"github.com/sema-go/sema"
)

var (
	counter = sema.NewCounter(0, 1)
	started = counter.Wait(context.Background(), 0)
)

func init() { _ = counter.Wait(context.Background(), 1) }

func main() { _ = counter.Wait(context.Background(), 1) }

func other() error {
	return counter.Wait(context.Background(), 1) // want `counter.Wait waits with context.Background\(\), which never ends; pass the caller's context, or one with a timeout`
}

func request(ctx context.Context) error {
	return counter.Wait(context.Background(), 1) // want `pass ctx`
}
