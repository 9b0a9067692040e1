package etcdstore

import (
	"errors"
	"fmt"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sema-go/sema/fleet/protocol"
)

// A view is what a process knows of a semaphore: its state after some entry of its
// log, and the changes that the process attempts to write.
//
// rows are as of that entry. state is restored from them, and is ahead of them while calls
// are applied. It is discarded if the calls are not written.
type view struct {
	name     string
	maxValue int
	loaded   bool
	fresh    bool // it was read after the present calls were created
	stale    bool // another process is known to have written since

	revision       int64 // of the head; 0: there is no such semaphore
	createRevision int64 // the revision in which the head was created
	head           head
	logged         int // bytes of entries after the last complete one
	complete       int // bytes of the last complete entry
	rows           *rows
	pace           pace

	floor         protocol.Seq // as of when the view was loaded
	floorRevision int64

	state    *protocol.State     // nil: to be restored, or there is none
	now      protocol.Micros     // the time of state, if time is measured
	watching protocol.TicketName // the first of the queue that was notified to watch the time
}

// unload discards the view, when it may be wrong.
func (v *view) unload() {
	v.loaded, v.fresh, v.stale = false, false, false
	v.revision, v.createRevision, v.head, v.logged, v.complete = 0, 0, head{}, 0, 0
	v.rows, v.state = nil, nil
	v.pace.reset()
}

// errGap means that entries are missing that are needed.
var errGap = errors.New("entries were dropped")

// load replaces the view by the head, if any, and the log.
func (v *view) load(found *mvccpb.KeyValue, entries []written) error {
	v.unload()
	if found != nil {
		if err := v.absorb(found, entries); err != nil {
			return err
		}
	}
	v.loaded, v.fresh = true, true
	return nil
}

// absorb applies the entries that were written since, up to the head, which has the
// configuration after the last of them.
func (v *view) absorb(found *mvccpb.KeyValue, entries []written) error {
	h, err := parseHead(found)
	if err != nil {
		return v.damaged(err)
	}
	if v.createRevision != 0 && v.createRevision != found.CreateRevision {
		return errGap // it was deleted and created again
	}
	for _, w := range entries {
		switch {
		case w.number <= v.head.Number || w.number < h.Full && v.rows == nil:
			continue
		case w.entry.State != nil:
			if v.rows != nil && w.number != v.head.Number+1 {
				v.pace.reset() // it is not known when the entries between were written
			}
			im, err := w.entry.State.image(w.entry.Plain.image(h))
			if err != nil {
				return v.damaged(err)
			}
			v.rows = newRows(im)
			v.complete, v.logged = w.size, 0
		case v.rows != nil && w.number == v.head.Number+1:
			c, err := w.entry.Changes.changes(w.entry.Plain.image(h), v.rows)
			if err != nil {
				return v.damaged(err)
			}
			v.rows.apply(c)
			v.logged += w.size
		default:
			return errGap
		}
		v.head.Number = w.number
		v.watching = protocol.TicketName(w.entry.Watching)
		v.pace.learn(w.entry.Pace, v.rows.plain.Config.TTL)
	}
	if v.head.Number != h.Number {
		return errGap
	}
	v.head, v.revision, v.createRevision = h, found.ModRevision, found.CreateRevision
	v.state = nil
	return nil
}

// damaged returns the permanent error of a semaphore that cannot be read.
func (v *view) damaged(err error) error {
	if errors.Is(err, errUnreleased) || errors.Is(err, protocol.ErrVersion) {
		return permanent{about(v.name, err)}
	}
	return permanent{fmt.Errorf("semaphore %q is damaged: %w", v.name, err)}
}

// written is an entry of the log.
type written struct {
	number uint64
	size   int
	entry  entry
}

func parseEntry(found *mvccpb.KeyValue) (w written, err error) {
	if w.number, err = numberOf(string(found.Key)); err != nil {
		return w, err
	}
	return w, w.decode(found.Value)
}

func (w *written) decode(value []byte) error {
	w.size, w.entry = len(value), entry{}
	if err := unpack(value, &w.entry); err != nil {
		return fmt.Errorf("entry %d: %w", w.number, err)
	}
	if w.entry.Parts == 0 && (w.entry.Plain == nil || (w.entry.State == nil) == (w.entry.Changes == nil)) {
		return fmt.Errorf("entry %d is incomplete", w.number)
	}
	return nil
}

// ready restores the state if it is missing, and returns the time for the calls of an
// attempt.
func (v *view) ready() (now protocol.Micros, err error) {
	clock := v.pace.clock
	switch {
	case clock.fixed != nil:
		if v.state == nil && v.rows != nil {
			err = v.restore(v.rows.plain.Last)
		}
		return clock.fixed(), err
	case v.rows == nil:
		return clock.wall(), nil
	}
	wall := clock.wall()
	if v.state != nil && wall-v.now-v.pace.due() > wallStep {
		v.state = nil
	}
	if v.state == nil {
		v.pace.rewind()
		// For sessions no more time passes than was measured, whatever the wall clock
		// shows: the state is restored as of that much earlier.
		due := v.pace.due()
		if err := v.restore(v.wallTime(wall, due) - due); err != nil {
			return 0, err
		}
	}
	v.now += v.pace.take()
	return v.now, nil
}

// wallTime returns the time for all but sessions: that of the wall clock that is most
// ahead, as far as is known. The time that is due to sessions may have passed on another
// wall clock already; so it counts only if all clocks are behind.
func (v *view) wallTime(wall, due protocol.Micros) protocol.Micros {
	last := v.rows.plain.Last
	if wall < last {
		return last + due
	}
	return max(wall, last+v.pace.sinceLearned())
}

// wallStep is by how much the wall clock must be ahead of the measured time to be used,
// while no other process writes.
const wallStep = protocol.Micros(1_000_000)

// restore restores the state from the rows, as of a time.
func (v *view) restore(last protocol.Micros) error {
	im := v.rows.image()
	im.Last = last
	v.now = im.Last
	state, err := protocol.Restore(im)
	if err != nil {
		return v.damaged(fmt.Errorf("%w; delete it", err))
	}
	state.Track()
	v.state = state
	return nil
}

// create creates the semaphore.
func (v *view) create(now protocol.Micros, c protocol.Config) error {
	state, err := protocol.New(now, c, v.floor)
	if err != nil {
		return err
	}
	state.Track()
	v.state, v.now = state, now
	v.pace.reset()
	v.pace.learn(0, c.TTL)
	return nil
}
