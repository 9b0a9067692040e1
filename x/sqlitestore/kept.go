package sqlitestore

import (
	"fmt"
	"reflect"

	"github.com/sema-go/sema/fleet/protocol"
)

// A kept semaphore is one in memory, and what is known of its rows.
type kept struct {
	name      string
	state     *protocol.State // nil: there is none of that name
	tombstone protocol.Seq    // of one that there was
	touched   bool            // by the present group
	spoilt    error           // somebody panicked half-way

	changes protocol.Changes // to write
	rows    rows
}

// rows are what the file has of a semaphore.
type rows struct {
	id     int64          // of the semaphore; 0: none
	stale  bool           // all of them are of an earlier life
	plain  protocol.Image // without the lists
	places int64          // the last in line that was given
	spent  []protocol.SpentImage
	first  int64 // the number of the first of spent
}

// plain is an image without its lists.
func plain(im protocol.Image) protocol.Image {
	im.Sessions, im.Leases, im.Line, im.Spent = nil, nil, nil, nil
	return im
}

// stored is what the file says about a name.
type stored struct {
	tombstone protocol.Seq
	image     protocol.Image
	rows      rows
}

// restore makes of what is stored a semaphore that notes what changes.
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
	k.state = state
	return k, nil
}

// make begins a semaphore.
func (k *kept) make(now protocol.Micros, c protocol.Config) error {
	state, err := protocol.New(now, c, k.tombstone)
	if err != nil {
		return err
	}
	state.Track()
	k.state = state
	return nil
}

// delete ends it. Its rows go with the next commit.
func (k *kept) delete() {
	k.tombstone = k.state.Tombstone()
	k.state = nil
	k.rows = rows{id: k.rows.id, stale: true}
}

// collect prepares what is to be written. It reports whether there is anything.
// That time has passed is not worth a commit: a clock that is behind after a
// crash makes sessions live longer, never shorter.
func (k *kept) collect() bool {
	if k.state == nil {
		return k.rows.stale
	}
	k.changes = k.state.Changes()
	c := &k.changes
	if k.rows.stale || len(c.Sessions)+len(c.Ended)+len(c.Leases)+len(c.Dropped)+len(c.Line)+len(c.Left) > 0 || c.Respent {
		return true
	}
	now, then := c.Image, k.rows.plain
	now.Last, now.Clock, then.Last, then.Clock = 0, 0, 0, 0
	return !reflect.DeepEqual(now, then)
}
