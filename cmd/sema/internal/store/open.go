package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
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

// Open opens the store. It fails with a usage error, or with [Unreachable].
func (u URL) Open(ctx context.Context, access Access) (fleet.Store, error) {
	if u.IsHost() {
		return nil, exit.Misuse("semaphores of this machine are held by processes, not leased by a store").With("name a store with --store or SEMA_STORE")
	}
	if _, known := ports[u.Scheme()]; !known && !u.IsEmbedded() {
		return nil, &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: fmt.Sprintf("no store for %q URLs", u.Scheme()), Advice: wanted}
	}
	opened, err := u.open(ctx, access)
	if err != nil && !errors.Is(err, sema.ErrInvalid) {
		return nil, Unreached(err)
	}
	return opened, err
}

func (u URL) open(ctx context.Context, access Access) (fleet.Store, error) {
	if access == Creating {
		return stores.Open(ctx, u.raw)
	}
	opened, err := stores.Open(ctx, u.raw, stores.ReadOnly(), stores.AnySettings())
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
	return stores.Open(ctx, u.raw)
}

// An Unreachable is the error of a store that cannot be reached for any reason. It is
// [sema.ErrUnavailable].
type Unreachable struct{ Cause error }

// Error implements error.
func (u *Unreachable) Error() string { return u.Cause.Error() }

// Unwrap returns the cause and [sema.ErrUnavailable].
func (u *Unreachable) Unwrap() []error { return []error{u.Cause, sema.ErrUnavailable} }

// Unreached wraps err in [Unreachable]. It returns nil, and errors with an exit code, unchanged.
func Unreached(err error) error {
	var coded *exit.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return &Unreachable{err}
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
