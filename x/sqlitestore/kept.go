package sqlitestore

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A kept semaphore is in memory, with what is known of its rows.
type kept struct {
	name      string
	state     *protocol.State // nil: there is none of that name
	tombstone protocol.Seq    // of a deleted one; 0: none
	touched   bool            // by the present group
	ticked    time.Time       // when tick last looked at it, on the monotonic clock
	spoilt    error           // a request panicked half-way

	changes protocol.Changes // to write
	rows    rows
}

// rows are what the file has of a semaphore.
type rows struct {
	id     int64 // of the semaphore; 0: none
	stale  bool  // all of them are of a semaphore that was deleted
	places int64 // the last place in the queue that was given
	spent  []protocol.SpentImage
}

// stored is what the file has of a name.
type stored struct {
	tombstone protocol.Seq
	image     protocol.Image
	rows      rows
}

// restore returns the semaphore that is stored. It tracks its changes.
func restore(name string, s stored) (*kept, error) {
	k := &kept{name: name, tombstone: s.tombstone, rows: s.rows}
	if s.rows.id == 0 {
		return k, nil
	}
	state, err := protocol.Restore(s.image)
	if err != nil {
		return nil, fmt.Errorf("semaphore %q is damaged: %w; while nobody has the file open, delete its row in table semaphore", name, err)
	}
	state.Track()
	state.Extend() // the last heartbeats may not be in the file
	k.state = state
	return k, nil
}

// make creates the semaphore.
func (k *kept) make(now protocol.Micros, c protocol.Config) error {
	state, err := protocol.New(now, c, k.tombstone)
	if err != nil {
		return err
	}
	state.Track()
	k.state = state
	return nil
}

// delete removes the semaphore. The next commit removes its rows.
func (k *kept) delete() {
	k.tombstone = k.state.Tombstone()
	k.state = nil
	k.rows = rows{id: k.rows.id, stale: true}
}

// collect prepares what is to be written. It reports whether there is anything.
// Heartbeats, and that time has passed, are not worth a commit: the next one has
// them, and after a crash before that every session gets a whole TTL.
func (k *kept) collect() bool {
	switch {
	case k.state == nil:
		return k.rows.stale
	case !k.rows.stale && k.rows.id != 0 && !k.state.Vital():
		return false
	}
	k.changes = k.state.Changes()
	return true
}
