package fleet

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store keeps semaphores by name and applies batches to them as [protocol.State]
// does: one at a time for each semaphore, each wholly or not at all, by the store's
// clock. All methods may be called concurrently. Clients renew, wait, batch and fence.
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

	// Listen calls hint with the names of semaphores of which sessions of the instance
	// have something to receive, until ctx ends. A notification may be lost, late or
	// doubled.
	Listen(ctx context.Context, instance string, hint func(name string)) error

	// Inspect returns a semaphore. It fails with [io/fs.ErrNotExist] if there is none.
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)

	// List returns summaries of the semaphores that the query selects, by name in the
	// order of bytes. It takes one round trip or a few, however many there are, and
	// changes nothing: an expired session counts until the semaphore is used. A page
	// with fewer than [protocol.ListQuery.Most] is the last.
	List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error)

	// Administer does what a command says. It fails with [io/fs.ErrNotExist] if
	// there is no such semaphore, or lease.
	Administer(ctx context.Context, name string, c Command) error

	// Close closes connections. Sessions stay until they expire.
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

// A Revocation ends a lease of any client.
type Revocation struct {
	Lease LeaseID
	// AtOnce does not wait until the holder has confirmed it: the permits are granted to
	// others while the holder may still work.
	AtOnce bool
	By     string // who revokes it, for the holder to read
	Why    string
}

// Check fails on a reason that not every store can keep.
func (r Revocation) Check() error {
	if err := CheckMeta(r.Note()); err != nil {
		return fmt.Errorf("%w: the reason is kept with the lease: %w", sema.ErrInvalid, err)
	}
	return nil
}

// Note returns the text that the holder receives.
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
