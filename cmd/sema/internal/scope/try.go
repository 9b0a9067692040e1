package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
)

// DefaultTTL is the default TTL of package fleet.
const DefaultTTL = 15 * time.Second

// Try acquires without waiting for a permit. It waits in one case: the store cannot decide yet
// whether a permit is free, because it has restarted or a holder may have expired. Then the error
// contains when to retry ([sema.Error.After]). Try retries for at most two TTLs, and warns once.
//
// inspect returns the stored semaphore.
func Try[T any](ctx context.Context, name string, warn func(facts, hint string), inspect func(context.Context) (State, error), acquire func(context.Context) (T, error)) (T, error) {
	var deadline time.Time
	for {
		got, err := acquire(ctx)
		after := undecided(err)
		if after <= 0 {
			return got, err
		}
		if deadline.IsZero() {
			ttl := DefaultTTL
			if stored, failed := inspect(ctx); failed == nil {
				if stored.Window != 0 {
					return got, err // the permits of a rate return by time: a retry would wait for one
				}
				ttl = time.Duration(stored.TTL)
			}
			deadline = time.Now().Add(2 * ttl)
			warn(fmt.Sprintf("the store cannot decide yet whether a permit of %q is free: it has restarted, or a holder may have expired; retrying for %s at most", name, flags.Span(2*ttl)), "")
		}
		left := time.Until(deadline)
		if left <= 0 {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, context.Cause(ctx)
		case <-time.After(min(after, left)):
		}
	}
}

// undecided returns the time after which a store can decide; 0 if it has decided.
func undecided(err error) time.Duration {
	var e *sema.Error
	if !errors.As(err, &e) || !errors.Is(err, sema.ErrFull) && !errors.Is(err, sema.ErrUnavailable) {
		return 0
	}
	return e.After
}
