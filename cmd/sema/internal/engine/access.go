package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/stores"
)

// An Access is what a command does with a store.
type Access uint8

const (
	// Reading creates, migrates and changes nothing. A SQLite file can be read while
	// another process owns it, and a server whose settings may lose permits is read too.
	Reading Access = iota
	// Changing changes semaphores that exist. It neither creates nor migrates tables:
	// a command of an operator must not upgrade a schema that older programs use.
	Changing
	// Creating is for commands that acquire permits: they create what is missing.
	Creating
)

// OpenStore opens the store at a URL.
func OpenStore(ctx context.Context, store string, access Access) (fleet.Store, error) {
	if access == Creating {
		return stores.Open(ctx, store)
	}
	opened, err := stores.Open(ctx, store, stores.ReadOnly(), stores.AnySettings())
	sqlite := strings.HasPrefix(store, "sqlite:")
	switch {
	case err != nil && sqlite && errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Code: Problems, Err: fmt.Errorf("%s: the file does not exist; 'sema serve', or the first acquire, creates it", Shown(store))}
	case err != nil:
		return nil, err
	case access == Reading:
		return reader{opened}, nil
	case !sqlite:
		return opened, nil
	}
	// The file exists and has the schema of this program.
	if err := opened.Close(); err != nil {
		return nil, err
	}
	return stores.Open(ctx, store)
}

// A reader is a store without notifications: clients would register for them, and
// etcd keeps a key for each.
type reader struct{ fleet.Store }

// Listen implements [fleet.Store].
func (reader) Listen(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Ping implements [fleet.Examiner].
func (r reader) Ping(ctx context.Context) (time.Time, error) {
	if e, ok := r.Store.(fleet.Examiner); ok {
		return e.Ping(ctx)
	}
	return time.Time{}, fmt.Errorf("ping: %w", errors.ErrUnsupported)
}

// Examine implements [fleet.Examiner].
func (r reader) Examine(ctx context.Context) ([]fleet.Finding, error) {
	if e, ok := r.Store.(fleet.Examiner); ok {
		return e.Examine(ctx)
	}
	return nil, fmt.Errorf("examine: %w", errors.ErrUnsupported)
}
