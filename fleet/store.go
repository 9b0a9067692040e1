package fleet

import (
	"context"
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store keeps semaphores by name. It applies batches to them like [protocol.State]: one
// at a time for each semaphore, each completely or not at all, by the store's clock. All
// methods may be called concurrently. Renewing, waiting, batching and fencing are up to
// the clients.
type Store interface {
	// Open creates the semaphore with the configuration unless it exists, and opens a
	// session on it. It fails with [protocol.ErrVersion] if clients of the
	// configuration's Protocol cannot use the stored semaphore. If the opener requires an
	// existing semaphore, Open reads only Protocol of the configuration, and fails with
	// [io/fs.ErrNotExist] instead of creating one. The session belongs to the opener's
	// owner: a batch with another owner gets [protocol.Unknown].
	Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error)

	// Apply applies a batch.
	Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error)

	// Listen calls notify with the names of semaphores for which sessions of the instance
	// have something to receive, until ctx ends. A notification may be lost, late or
	// duplicated.
	Listen(ctx context.Context, instance string, notify func(name string)) error

	// Inspect returns a snapshot of a semaphore. It fails with [io/fs.ErrNotExist] if the
	// semaphore does not exist.
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)

	// List returns summaries of the semaphores that the query selects, sorted bytewise by
	// name. It takes one or a few round trips, however many semaphores there are. It
	// changes nothing: an expired session is counted until the semaphore is used. A page
	// with fewer than [protocol.ListQuery.Most] summaries is the last.
	List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error)

	// Administer executes a command. It fails with [io/fs.ErrNotExist] if the semaphore
	// or the lease does not exist.
	Administer(ctx context.Context, name string, c Command) error

	// Close closes connections. Sessions stay until they expire.
	Close() error
}

// A Command is an administrative operation. One of Configure, Revoke and Delete is set.
type Command struct {
	Configure *protocol.Config // new configuration, with the version on which it is based
	Revoke    *Revocation
	Delete    bool // deletes the semaphore with all sessions and leases

	// DeleteVersion makes Delete fail with [protocol.ErrConflict] unless the
	// configuration has this version; 0: any.
	DeleteVersion uint64
}

// A Revocation ends a lease of any client.
type Revocation struct {
	Lease LeaseID
	// AtOnce frees the permits without the holder's confirmation: they may be granted to
	// others while the holder still works.
	AtOnce bool
	By     string // operator, for the holder to read
	Why    string
}

// Check fails if the reason cannot be stored with a lease.
func (r Revocation) Check() error {
	if err := CheckMeta(r.Note()); err != nil {
		return fmt.Errorf("%w: the reason is stored with the lease: %w", sema.ErrInvalid, err)
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
