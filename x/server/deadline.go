package server

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// storeTimeout bounds one operation of the store, except those of acquires, which
// internal/leasing bounds.
const storeTimeout = 5 * time.Second

// withinTimeout does one operation within [storeTimeout], and tells an outage from a result.
func withinTimeout(ctx context.Context, operation func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := operation(within)
	if err == nil || ctx.Err() != nil || isResult(err) {
		return err
	}
	return &outage{err}
}

// isResult reports whether a store that fails so has replied.
func isResult(err error) bool {
	for _, result := range []error{
		fs.ErrNotExist, fs.ErrPermission, errors.ErrUnsupported, protocol.ErrConflict, protocol.ErrVersion, sema.ErrInvalid, sema.ErrClosed, sema.ErrUnavailable,
	} {
		if errors.Is(err, result) {
			return true
		}
	}
	return false
}

// An outage is a failure of the store. It is [sema.ErrUnavailable], with the text of the
// cause.
type outage struct{ cause error }

func (o *outage) Error() string        { return o.cause.Error() }
func (o *outage) Unwrap() error        { return o.cause }
func (o *outage) Is(target error) bool { return target == sema.ErrUnavailable }
