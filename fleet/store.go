package fleet

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store is an engine. It keeps semaphores by name and applies batches to them
// as [protocol.State] would: one at a time for each semaphore, each wholly or
// not at all, on the engine's clock. All methods may be called concurrently.
// Renewal, waiting, batching and fencing are not its business.
type Store interface {
	// Open makes the semaphore with that configuration unless it is there, and
	// begins a session on it. It fails with [protocol.ErrVersion] if those who
	// speak the configuration's Protocol cannot use what is there. With a
	// configuration that no semaphore can have it opens what is there, and makes
	// nothing. The session belongs to the opener's owner: a batch with another one
	// gets [protocol.Unknown].
	Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error)

	// Apply does what a batch asks.
	Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error)

	// Listen calls hint with the names of semaphores on which sessions of the
	// instance have news, until ctx ends. A hint may be lost, late or doubled.
	Listen(ctx context.Context, instance string, hint func(name string)) error

	// Inspect is a semaphore as it is. It fails with [io/fs.ErrNotExist] if there
	// is none.
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)

	// Administer does what a command says. It fails with [io/fs.ErrNotExist] if
	// there is no such semaphore, or lease.
	Administer(ctx context.Context, name string, c Command) error

	// Close lets go of the engine. Sessions live on, as long as they do.
	Close() error
}

// A Lister is a Store that knows the names of its semaphores. They are listed in
// order.
type Lister interface {
	List(ctx context.Context, prefix string) ([]string, error)
}

// A Command is what an administrator wants. One of its fields is set.
type Command struct {
	Configure *protocol.Config // the new configuration, with the version it is based on
	Revoke    *Revocation
	Delete    bool // all leases are void
}

// A Revocation takes a lease away.
type Revocation struct {
	Lease protocol.Seq
	// AtOnce does not wait until the holder has heard of it. Others are let in
	// while it may still be at work.
	AtOnce bool
	By     string // who takes it away, for the holder to read
	Why    string
}

// Check fails on a reason that no engine has to keep.
func (r Revocation) Check() error {
	if err := CheckMeta(r.Note()); err != nil {
		return fmt.Errorf("%w: the reason is kept with the lease: %w", sema.ErrInvalid, err)
	}
	return nil
}

// Note is what the holder is told.
func (r Revocation) Note() string {
	note := "taken away"
	if r.By != "" {
		note += " by " + r.By
	}
	if r.Why != "" {
		note += ": " + r.Why
	}
	return note
}
