package sqlitestore

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// An entry is a semaphore in memory, and a cache of what the file contains of it.
type entry struct {
	name      string
	state     *protocol.State // nil: no semaphore has that name
	tombstone protocol.Seq    // last Seq of a deleted semaphore; 0: none
	touched   bool            // used by the current group
	ticked    time.Time       // time of the last tick, on the monotonic clock
	panicked  error           // error of a request that panicked half-way

	changes protocol.Changes // to be written
	rows    rows
}

// rows describes the rows of a semaphore in the file.
type rows struct {
	id     int64 // id of the semaphore; 0: not in the file
	stale  bool  // all rows belong to a semaphore that was deleted
	places int64 // the last place assigned in the queue
	spent  []protocol.SpentImage
}

// stored contains what the file has for a name.
type stored struct {
	tombstone protocol.Seq
	image     protocol.Image
	rows      rows
}

// restore returns an entry for a stored semaphore. Its state tracks changes.
func restore(name string, s stored) (*entry, error) {
	k := &entry{name: name, tombstone: s.tombstone, rows: s.rows}
	if s.rows.id == 0 {
		return k, nil
	}
	state, err := protocol.Restore(s.image)
	if err != nil {
		return nil, fmt.Errorf("semaphore %q is damaged: %w; delete its row in table semaphore while no process has the file open", name, err)
	}
	state.Track()
	state.Extend() // the last heartbeats may not be in the file
	k.state = state
	return k, nil
}

// create creates the semaphore in memory.
func (k *entry) create(now protocol.Micros, c protocol.Config) error {
	state, err := protocol.New(now, c, k.tombstone)
	if err != nil {
		return err
	}
	state.Track()
	k.state = state
	return nil
}

// delete removes the semaphore. The next commit removes its rows.
func (k *entry) delete() {
	k.tombstone = k.state.Tombstone()
	k.state = nil
	k.rows = rows{id: k.rows.id, stale: true}
}

// collect prepares the changes to be written, and reports whether there are any.
// Heartbeats and the passing of time alone cause no commit: the next commit includes
// them, and after a crash before that every session gets a whole TTL.
func (k *entry) collect() bool {
	switch {
	case k.state == nil:
		return k.rows.stale
	case !k.rows.stale && k.rows.id != 0 && !k.state.Vital():
		return false
	}
	k.changes = k.state.Changes()
	return true
}
