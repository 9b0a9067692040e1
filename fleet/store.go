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
	// Open creates the semaphore with the configuration unless it exists, and opens a
	// session on it. It fails with [protocol.ErrVersion] if clients of the
	// configuration's Protocol cannot use the stored semaphore. If the opener requires
	// that it exists, Open creates nothing, ignores all of the configuration but
	// Protocol, and fails with [io/fs.ErrNotExist]. The session belongs to the opener's
	// owner: a batch with another one gets [protocol.Unknown].
	Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error)

	// Apply does what a batch asks.
	Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error)

	// Listen calls hint with the names of semaphores on which sessions of the
	// instance have news, until ctx ends. A hint may be lost, late or doubled.
	Listen(ctx context.Context, instance string, hint func(name string)) error

	// Inspect is a semaphore as it is. It fails with [io/fs.ErrNotExist] if there
	// is none.
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)

	// List returns summaries of the semaphores that the query selects, by name in the
	// order of bytes. It takes one round trip or a few, however many there are, and
	// changes nothing: an expired session counts until the semaphore is used. A page
	// with fewer than [protocol.ListQuery.Most] is the last.
	List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error)

	// Administer does what a command says. It fails with [io/fs.ErrNotExist] if
	// there is no such semaphore, or lease.
	Administer(ctx context.Context, name string, c Command) error

	// Close lets go of the engine. Sessions live on, as long as they do.
	Close() error
}

// A Command is what an administrator wants. One of its fields is set.
type Command struct {
	Configure *protocol.Config // the new configuration, with the version it is based on
	Revoke    *Revocation
	Delete    bool // the semaphore, with all sessions and leases

	// DeleteVersion makes Delete fail with [protocol.ErrConflict] unless the
	// configuration has this version; 0: any.
	DeleteVersion uint64
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
	note := "revoked"
	if r.By != "" {
		note += " by " + r.By
	}
	if r.Why != "" {
		note += ": " + r.Why
	}
	return note
}
