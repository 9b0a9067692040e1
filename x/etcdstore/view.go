package etcdstore

import (
	"encoding/json"
	"errors"
	"fmt"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sema-go/sema/fleet/protocol"
)

// A view is what a process knows of a semaphore: how it was after some entry of
// its log, and what the process is trying to make of that.
//
// rows are the truth of that entry. state is made of them and goes ahead of them
// while calls are applied; it is thrown away if they are not written down.
type view struct {
	name     string
	maxValue int
	loaded   bool
	fresh    bool // it was read after the present calls were made
	stale    bool // somebody else is known to have written since

	revision int64 // of the head; 0: there is no such semaphore
	life     int64 // the revision in which the head was made
	head     head
	logged   int // bytes of entries after the last complete one
	complete int // bytes of that one
	rows     *rows
	pace     pace

	floor         protocol.Seq // as of when it was loaded
	floorRevision int64

	state    *protocol.State     // nil: to be restored, or none
	now      protocol.Micros     // what it was told last, if its time is measured
	watching protocol.TicketName // the first in line that was told to watch the time
}

// unload is when what is known may be wrong.
func (v *view) unload() {
	v.loaded, v.fresh, v.stale = false, false, false
	v.revision, v.life, v.head, v.logged, v.complete = 0, 0, head{}, 0, 0
	v.rows, v.state = nil, nil
	v.pace.forget()
}

// errGap is when entries are missing that are needed.
var errGap = errors.New("entries were dropped")

// load takes in all there is to a semaphore: its head, if any, and the log.
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

// absorb takes in the entries that have been written since, and the head that
// came with the last of them.
func (v *view) absorb(found *mvccpb.KeyValue, entries []written) error {
	h, err := parseHead(found)
	if err != nil {
		return v.damaged(err)
	}
	if v.life != 0 && v.life != found.CreateRevision {
		return errGap // it was deleted and made again
	}
	for _, w := range entries {
		switch {
		case w.number <= v.head.Number || w.number < h.Full && v.rows == nil:
			continue
		case w.entry.State != nil:
			if v.rows != nil && w.number != v.head.Number+1 {
				v.pace.forget() // of what happened between, it is not known when
			}
			v.rows = newRows(w.entry.State.image(w.entry.Plain.image()))
			v.complete, v.logged = w.size, 0
		case v.rows != nil && w.number == v.head.Number+1:
			v.rows.apply(w.entry.Changes.changes(w.entry.Plain.image()))
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
	v.head, v.revision, v.life = h, found.ModRevision, found.CreateRevision
	v.state = nil
	return nil
}

func (v *view) damaged(err error) error {
	return permanent{fmt.Errorf("semaphore %q is damaged: %w", v.name, err)}
}

func parseHead(found *mvccpb.KeyValue) (h head, err error) {
	if err := json.Unmarshal(found.Value, &h); err != nil {
		return h, fmt.Errorf("its head: %w", err)
	}
	if h.Format != format {
		return h, fmt.Errorf("%w: it was written in format %d, this program knows %d", protocol.ErrVersion, h.Format, format)
	}
	return h, nil
}

// A written entry is one that is in the log.
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

// ready has the state at hand, and says what time it is for the calls of an
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
		v.pace.again()
		// To sessions no more is told than was measured, whatever the wall clock
		// shows: the state is made to have stopped so much before that time.
		due := v.pace.due()
		if err := v.restore(v.wallTime(wall, due) - due); err != nil {
			return 0, err
		}
	}
	v.now += v.pace.tell()
	return v.now, nil
}

// wallTime is what time it is to be, for all but sessions: that of the wall clock
// that is most ahead, as far as is known. What is due to sessions may have been
// on somebody's wall clock already; so it counts only if all clocks are behind.
func (v *view) wallTime(wall, due protocol.Micros) protocol.Micros {
	last := v.rows.plain.Last
	if wall < last {
		return last + due
	}
	return max(wall, last+v.pace.sinceLearned())
}

// wallStep is by how much the wall clock has to be ahead, while nobody else
// writes, for it to be looked at.
const wallStep = protocol.Micros(1_000_000)

// restore makes the state of the rows, which was last spoken to at some time.
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

// make begins a semaphore.
func (v *view) make(now protocol.Micros, c protocol.Config) error {
	state, err := protocol.New(now, c, v.floor)
	if err != nil {
		return err
	}
	state.Track()
	v.state, v.now = state, now
	v.pace.forget()
	v.pace.learn(0, c.TTL)
	return nil
}
