package sqlitestore

import (
	"context"
	"fmt"

	"github.com/sema-go/sema/fleet/protocol"
)

// A writer has the semaphores of a file, in memory and in the file. It serves
// requests in groups: all of a group are done in memory, then what has changed
// is written in one transaction, and only when that is committed does anybody
// hear of it. If it is not, memory is ahead of the file: what was touched is
// forgotten, and read again before it is used again.
//
// It is not safe for concurrent use.
type writer struct {
	kept    map[string]*kept // by whole name; what is not here may be in the file
	touched []*kept          // by the present group
	live    map[string]*kept // of kept, those with sessions
	unread  map[string]bool  // whole names with sessions in the file that are not in memory
	file    *file            // nil: to be opened again
	open    func() (*file, error)
	fault   func(error) error
	hint    func(instance, whole string)
	now     func() protocol.Micros
	still   bool // a test moves the clock: nothing expires by itself

	commits      int          // that were made, of groups in which something changed
	checkpointed int          // how many were made when the log was last carried over
	unweighed    int          // ops since the last look at the reserve
	beforeCommit func() error // for tests; nil otherwise
}

// A request is what one caller wants: to act on a semaphore, or to read what is
// in the file.
type request struct {
	ctx   context.Context
	name  string // whole
	size  int
	act   func(protocol.Micros, *kept) error
	read  func(*file) error
	kept  *kept // that it acted on
	err   error
	ended chan error // buffered
}

// serve does what a group wants, and answers.
func (w *writer) serve(group []*request) {
	err := w.attemptAll(group)
	if isFull(err) && w.file != nil && w.file.checkpoint() {
		err = w.attemptAll(group) // into the log, which begins anew
	}
	for _, r := range group {
		w.unweighed += r.size
	}
	var hints []hint
	if err == nil {
		hints = w.settle()
	}
	for _, r := range group {
		r.ended <- w.outcome(r, err)
	}
	for _, h := range hints {
		w.hint(h.instance, h.whole)
	}
	w.tidy()
}

// attemptAll does what a group wants, wholly or not at all. The replies are sent later.
func (w *writer) attemptAll(group []*request) error {
	w.touched = w.touched[:0]
	err := w.ready()
	if err == nil {
		for _, r := range group {
			r.kept = nil
			r.err = w.attempt(r)
		}
		err = w.commit()
	}
	if err != nil {
		w.forget()
	}
	return err
}

// tidy runs when all requests have been answered. A failed checkpoint is ignored:
// what is in the log is safe, and the next commit meets a disk that is full.
func (w *writer) tidy() {
	if w.file == nil || w.commits-w.checkpointed < commitsBetweenCheckpoints && !w.isLow() {
		return
	}
	w.checkpointed = w.commits
	w.file.checkpoint()
}

// ready has the file open. It is closed after an error that may be the
// connection's.
func (w *writer) ready() (err error) {
	if w.file == nil {
		w.file, err = w.open()
	}
	return err
}

// attempt acts in memory.
func (w *writer) attempt(r *request) (err error) {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx) // nobody waits for it any more
	}
	if r.act == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = w.fault(fmt.Errorf("semaphore %q: panic: %v; it is read again from the file", r.name, p))
			if r.kept != nil {
				r.kept.spoilt = err
			}
		}
	}()
	if r.kept, err = w.keep(r.name); err != nil {
		return w.fault(err)
	}
	return r.act(w.now(), r.kept)
}

// keep is a semaphore, from memory or else from the file.
func (w *writer) keep(name string) (*kept, error) {
	k := w.kept[name]
	if k == nil {
		if w.file == nil {
			return nil, errBroken
		}
		stored, err := w.file.load(name)
		if err != nil {
			w.drop()
			return nil, err
		}
		if k, err = restore(name, stored); err != nil {
			return nil, err
		}
		w.kept[name] = k
		delete(w.unread, name)
	}
	if !k.touched {
		k.touched = true
		w.touched = append(w.touched, k)
	}
	return k, nil
}

// commit writes what has changed. If nothing has, there is no transaction.
func (w *writer) commit() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	changed := make([]*kept, 0, len(w.touched))
	for _, k := range w.touched {
		if k.spoilt == nil && k.collect() {
			changed = append(changed, k)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if w.file == nil {
		return errBroken
	}
	if err := w.file.begin(); err != nil {
		return err
	}
	for _, k := range changed {
		if err := w.file.write(k); err != nil {
			return fmt.Errorf("semaphore %q: %w", k.name, err)
		}
	}
	if w.beforeCommit != nil {
		if err := w.beforeCommit(); err != nil {
			return err
		}
	}
	w.commits++
	return w.file.commit()
}

// forget is after a commit that failed. The file has what it had before, or, if
// it was the disk that failed at the very end, what was to be written: so it is
// asked, and memory is not believed.
func (w *writer) forget() {
	for _, k := range w.touched {
		delete(w.kept, k.name)
		if w.live[k.name] != nil {
			delete(w.live, k.name)
			w.unread[k.name] = true
		}
	}
	if w.file != nil && w.file.rollback() != nil {
		w.drop()
	}
}

// drop closes the file, so that it is opened again for the next group.
func (w *writer) drop() {
	if w.file != nil {
		w.file.close() // it is broken: what it says now is of no use
		w.file = nil
	}
}

// A hint is news for an instance.
type hint struct{ instance, whole string }

// settle is after a commit: memory is what the file has.
func (w *writer) settle() (hints []hint) {
	for _, k := range w.touched {
		k.touched = false
		if k.spoilt != nil || k.state == nil {
			delete(w.kept, k.name)
			delete(w.live, k.name)
			continue
		}
		if k.state.TickEvery() > 0 {
			w.live[k.name] = k
		} else {
			delete(w.live, k.name)
		}
		for _, id := range k.state.Woken() {
			hints = append(hints, hint{k.state.Instance(id), k.name})
		}
	}
	return hints
}

// outcome is how a request ends, after a commit that failed or did not.
func (w *writer) outcome(r *request, failed error) error {
	switch {
	case failed != nil:
		return w.fault(failed)
	case r.kept != nil && r.kept.spoilt != nil:
		return r.kept.spoilt
	case r.err != nil:
		return r.err
	case r.read == nil:
		return nil
	case w.file == nil:
		return w.fault(errBroken)
	}
	if err := r.read(w.file); err != nil {
		return w.fault(err)
	}
	return nil
}

func (w *writer) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.close()
}
