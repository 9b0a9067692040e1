// Package contextfixes waits without the context of the request.
package contextfixes

import (
	"context"
	"net/http"

	"github.com/sema-go/sema"
)

func call(ctx context.Context, s *sema.Semaphore) error {
	return sema.Do(context.Background(), s, 1, nil) // want `sema.Do waits with context.Background\(\), which never ends; pass ctx`
}

func handle(s *sema.Counter) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_ = s.Wait(context.TODO(), 1) // want `s.Wait waits with context.TODO\(\), which never ends; pass r.Context\(\)`
	}
}

func shadowed(ctx context.Context, s *sema.Counter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	{
		ctx := "another"
		println(ctx)
		return s.Wait(context.Background(), 1) // want `s.Wait waits with context.Background\(\), which never ends; pass ctx`
	}
}
