package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/flags"
)

// DefaultTTL is that of package fleet.
const DefaultTTL = 15 * time.Second

// Try acquires without waiting for a permit. There is one case in which it waits: the
// store cannot decide yet whether a permit is free, since it has restarted or a holder
// may have expired. Then the error says after which time to ask again
// ([sema.Error.After]). Try does so, for at most two TTLs, and warns once.
//
// inspect returns the semaphore as it is stored.
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
					return got, err // permits of a rate return by time: that is waiting for one
				}
				ttl = time.Duration(stored.TTL)
			}
			deadline = time.Now().Add(2 * ttl)
			warn(fmt.Sprintf("the store cannot decide yet whether a permit of %q is free: it has restarted, or a holder may have expired; trying again for %s at most", name, flags.Span(2*ttl)), "")
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

// undecided returns after which time a store can decide; 0 if it has decided.
func undecided(err error) time.Duration {
	var e *sema.Error
	if !errors.As(err, &e) || !errors.Is(err, sema.ErrFull) && !errors.Is(err, sema.ErrUnavailable) {
		return 0
	}
	return e.After
}
