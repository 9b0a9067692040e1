package host

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxWatched bounds the processes that one process watches: each takes a descriptor.
	maxWatched = 64
	// maxRecordsRead bounds the records that are read to find them.
	maxRecordsRead = 4 * maxWatched
)

// A watch wakes the driver of this process when a process that holds permits ends, however
// it ends: the descriptor of that process becomes readable. Only the first waiter of the
// host watches. It still polls, because it cannot watch processes of other PID namespaces,
// those that inherited a permit, those beyond maxWatched, and any on systems without such
// descriptors.
//
// The driver alone calls the methods.
type watch struct {
	f       *file                // set when the file is opened
	head    *waiter              // the waiter that was first at the last sleep
	pause   time.Duration        // duration of the next sleep
	next    time.Duration        // duration of the sleep after that, if nothing happens
	due     bool                 // the last sleep was not interrupted: watch the holders before the next one
	watched map[process]*os.File // nil: had ended before it was watched
	ended   atomic.Bool          // a watched process has ended
	running sync.WaitGroup
}

// A process identifies a process of this PID namespace.
type process struct {
	pid     int
	started uint64
}

// sleep waits until another process or the end of a holder wakes this one, or it is time
// to poll. The waiter w is first of the host. Sleep may return early.
//
// It begins with a short sleep. Permits that are held for a shorter time are passed on
// without the cost of a watch. After the end of a watched process it polls at growing
// intervals: a command that inherited the permit may be about to end, too.
func (h *watch) sleep(w *waiter, seen uint32) {
	t := &h.f.timing
	switch {
	case h.ended.Swap(false):
		h.head, h.pause, h.next, h.due = w, t.watchAfter, min(4*t.watchAfter, t.poll), false
	case w != h.head:
		h.head, h.pause, h.next, h.due = w, t.watchAfter, t.poll, false
	}
	if h.due {
		h.due = false
		if h.refresh() {
			return
		}
	}
	if !h.f.sleep(seen, h.pause) {
		h.pause, h.next, h.due = h.next, min(4*h.next, t.poll), true
	}
}

// refresh watches the processes that hold permits now, and no others. It reports whether
// the caller has to search for slots again before it sleeps: a process may have ended
// before it was watched. Its locks were dropped before the kernel reports its end. One
// search after that suffices: what is still held then is held by a command that
// inherited it.
func (h *watch) refresh() (again bool) {
	holders := h.f.holdingProcesses()
	for p, opened := range h.watched {
		if !holders[p] {
			closeWatched(opened)
			delete(h.watched, p)
		}
	}
	for p := range holders {
		if _, known := h.watched[p]; !known && h.add(p) == nil {
			again = true
		}
	}
	return again
}

func closeWatched(opened *os.File) {
	if opened != nil {
		opened.Close()
	}
}

// add watches a process, or notes that it has ended. It fails if it cannot watch it.
func (h *watch) add(p process) error {
	opened, err := openProcess(p.pid)
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err == nil && startOf(p.pid) != p.started { // another process has its PID
		opened.Close()
		err = os.ErrProcessDone
	}
	if h.watched == nil {
		h.watched = map[process]*os.File{}
	}
	if err != nil {
		h.watched[p] = nil
		return nil
	}
	h.watched[p] = opened
	h.running.Go(func() {
		if awaitEnd(opened) {
			h.ended.Store(true)
			h.f.wakeDriver()
		}
	})
	return nil
}

// stop ends the watch of all processes. It may be used again.
func (h *watch) stop() {
	h.head = nil
	for p, opened := range h.watched {
		closeWatched(opened)
		delete(h.watched, p)
	}
	h.running.Wait() // its goroutines use the mapped content
}

// holdingProcesses returns up to maxWatched other processes of this PID namespace that
// hold permits, according to shared memory alone.
func (f *file) holdingProcesses() map[process]bool {
	if self().namespace == 0 {
		return nil
	}
	var held []uint64
	f.touch(func() {
		reach := min(f.head.reach.Load(), maxCapacity)
		held = make([]uint64, (reach+wordBits-1)/wordBits)
		for word := range held {
			held[word] = f.bitmap[word].Load() &^ f.mine[word].Load()
		}
	})
	found := map[process]bool{}
	read := 0
	for at := uint32(0); int(at) < len(held)*wordBits && read < maxRecordsRead && len(found) < maxWatched; {
		if held[at/wordBits] == 0 {
			at = (at/wordBits + 1) * wordBits
			continue
		}
		if !isHeld(held, at) {
			at++
			continue
		}
		r := f.readRecord(at)
		read++
		at++
		if r.since > 0 && r.pid != 0 && r.pid <= maxPID && r.namespace == self().namespace && r.started != 0 {
			found[process{int(r.pid), r.started}] = true
			at += min(max(r.slots, 1)-1, maxCapacity)
		}
	}
	return found
}
