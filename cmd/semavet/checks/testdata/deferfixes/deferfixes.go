// Package deferfixes has releases that can be deferred.
package deferfixes

import (
	"context"
	"net/http"

	"github.com/sema-go/sema"
)

func handle(s *sema.Semaphore, w *sema.Weighted) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		permit, err := s.Acquire(r.Context(), 1)
		if err != nil {
			return
		}
		work(r.Context())
		permit.Release() // want `permit.Release is not deferred`
	}
}

func weighted(w *sema.Weighted) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		if w.Acquire(r.Context(), 1) != nil {
			return
		}
		work(r.Context())
		w.Release(1) // want `w.Release is not deferred`
	}
}

func work(context.Context) {}
