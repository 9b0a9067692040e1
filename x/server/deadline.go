package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// storeTimeout bounds one operation of the store, except those of acquires, which
// internal/desk bounds.
const storeTimeout = 5 * time.Second

// A timedStore is a store whose operations, except Open, Apply and Listen, fail within
// [storeTimeout] with [sema.ErrUnavailable] when it does not reply.
type timedStore struct{ fleet.Store }

// Inspect implements [fleet.Store].
func (s timedStore) Inspect(ctx context.Context, name string) (snapshot protocol.Snapshot, err error) {
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { snapshot, err = s.Store.Inspect(ctx, name); return err })
	return snapshot, err
}

// Administer implements [fleet.Store].
func (s timedStore) Administer(ctx context.Context, name string, c fleet.Command) error {
	err := withinTimeout(ctx, func(ctx context.Context) error { return s.Store.Administer(ctx, name, c) })
	var gone *outage
	if c.Configure == nil || !errors.As(err, &gone) {
		return err
	}
	// Stores reject a configuration by an error of its own. One that replies is not
	// unavailable.
	if _, alive := s.Inspect(ctx, name); alive == nil {
		return gone.cause
	}
	return err
}

// List implements [fleet.Store].
func (s timedStore) List(ctx context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { page, err = s.Store.List(ctx, q); return err })
	return page, err
}

// Ping implements [fleet.Examiner].
func (s timedStore) Ping(ctx context.Context) (clock time.Time, err error) {
	examiner, ok := s.Store.(fleet.Examiner)
	if !ok {
		return time.Time{}, fmt.Errorf("ping the store: %w", errors.ErrUnsupported)
	}
	err = withinTimeout(ctx, func(ctx context.Context) (err error) { clock, err = examiner.Ping(ctx); return err })
	return clock, err
}

// Examine implements [fleet.Examiner]. It is many operations.
func (s timedStore) Examine(ctx context.Context) ([]fleet.Finding, error) {
	examiner, ok := s.Store.(fleet.Examiner)
	if !ok {
		return nil, fmt.Errorf("examine the store: %w", errors.ErrUnsupported)
	}
	return examiner.Examine(ctx)
}

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
