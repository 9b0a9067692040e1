// Package dial opens stores, once for all commands. It imports every store, and their drivers
// take milliseconds to initialise: a program that needs host: only does not import it.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/stores"
)

// An Access specifies what a command does with a store.
type Access uint8

const (
	// Reading creates, migrates and changes nothing. It can read a SQLite file that another
	// process owns, and a server whose settings may lose permits.
	Reading Access = iota
	// Changing changes existing semaphores. It neither creates nor migrates tables: an
	// operator's command must not upgrade a schema that older programs use.
	Changing
	// Creating is for commands that acquire permits: they create what is missing.
	Creating
)

// Scope opens the scope of a store.
func Scope(ctx context.Context, u store.URL, access Access) (scope.Scope, error) {
	if u.IsHost() {
		return scope.Host(u)
	}
	opened, err := Shared(ctx, u, access)
	if err != nil {
		return nil, err
	}
	return scope.Of(opened), nil
}

// Shared opens a store. It rejects stores that processes cannot share.
func Shared(ctx context.Context, u store.URL, access Access) (fleet.Store, error) {
	if u.IsMemory() {
		return nil, exit.Misuse("mem: is lost when this process ends, and no other process can use it").With("use host: on one machine")
	}
	return Open(ctx, u, access)
}

// Open opens a store. It fails with a usage error, or with [store.Unreachable].
func Open(ctx context.Context, u store.URL, access Access) (fleet.Store, error) {
	if err := u.CheckLeases(); err != nil {
		return nil, err
	}
	opened, err := open(ctx, u, access)
	if err != nil && !errors.Is(err, sema.ErrInvalid) {
		return nil, store.Unreached(err)
	}
	return opened, err
}

func open(ctx context.Context, u store.URL, access Access) (fleet.Store, error) {
	if access == Creating {
		return stores.Open(ctx, u.Raw())
	}
	opened, err := stores.Open(ctx, u.Raw(), stores.ReadOnly(), stores.AnySettings())
	isFile := u.Scheme() == "sqlite"
	switch {
	case err != nil && isFile && errors.Is(err, fs.ErrNotExist):
		return nil, exit.Errorf(exit.Failed, "%s: the file does not exist", u).With("'sema serve', or the first acquire, creates it")
	case err != nil:
		return nil, err
	case access == Reading:
		return reader{opened}, nil
	case !isFile:
		return opened, nil
	}
	// The file exists and has this program's schema.
	if err := opened.Close(); err != nil {
		return nil, err
	}
	return stores.Open(ctx, u.Raw())
}

// A reader is a store without notifications: clients would register for them, and etcd stores a
// key for each.
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

// Get requests what a service has measured, see package remotestore. It fails with
// [errors.ErrUnsupported] if the store is no service.
func (r reader) Get(ctx context.Context, path string, into any) error {
	if service, ok := r.Store.(interface {
		Get(ctx context.Context, path string, into any) error
	}); ok {
		return service.Get(ctx, path, into)
	}
	return fmt.Errorf("get %s: %w", path, errors.ErrUnsupported)
}
