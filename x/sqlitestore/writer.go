package sqlitestore

import (
	"context"
	"fmt"

	"github.com/sema-go/sema/fleet/protocol"
)

// A writer manages the semaphores of a file, in memory and in the file. It serves
// requests in groups (group commit). First it executes all requests of a group in
// memory. Then it writes the changes in one transaction. Only after the commit does it
// send replies and notifications. If the commit fails, memory is ahead of the file: the
// entries that the group used are discarded, and read again before their next use.
//
// It is not safe for concurrent use.
type writer struct {
	entries     map[string]*entry // by name with prefix; other semaphores may be in the file
	touched     []*entry          // entries used by the current group
	live        map[string]*entry // the entries with sessions
	unread      map[string]bool   // names with prefix of semaphores that have sessions in the file and are not in memory
	file        *file             // nil: must be opened again
	open        func() (*file, error)
	wrap        func(error) error
	notify      func(instance, fullName string)
	now         func() protocol.Micros
	manualClock bool // a test sets the clock: nothing expires by itself

	commits       int          // number of commits
	checkpointed  int          // value of commits at the last checkpoint
	opsSinceCheck int          // ops since isLow last checked the reserve
	beforeCommit  func() error // for tests; nil otherwise
}

// A request is an operation of one caller: act on a semaphore, or read the file.
type request struct {
	ctx   context.Context
	name  string // with prefix
	size  int
	act   func(protocol.Micros, *entry) error
	read  func(*file) error
	entry *entry // the entry that it acted on
	err   error
	ended chan error // buffered
	over  bool       // the caller has received the result: the writer does not use the request any more
}

// serve executes a group and sends the replies.
func (w *writer) serve(group []*request) {
	err := w.attemptAll(group)
	if isFull(err) && w.file != nil && w.file.checkpoint() {
		err = w.attemptAll(group) // the log is reused from its beginning
	}
	for _, r := range group {
		w.opsSinceCheck += r.size
	}
	var notifications []notification
	if err == nil {
		notifications = w.finishCommit()
	}
	for _, r := range group {
		r.ended <- w.resultOf(r, err)
	}
	for _, h := range notifications {
		w.notify(h.instance, h.fullName)
	}
	w.checkpointIfDue()
}

// attemptAll executes all requests of a group, or none. The replies are sent later.
func (w *writer) attemptAll(group []*request) error {
	w.touched = w.touched[:0]
	err := w.ensureOpen()
	if err == nil {
		for _, r := range group {
			r.entry = nil
			r.err = w.attempt(r)
		}
		err = w.commit()
	}
	if err != nil {
		w.discardTouched()
	}
	return err
}

// checkpointIfDue runs after all replies were sent. A failed checkpoint is ignored: the
// content of the log is safe, and the next commit reports a full disk.
func (w *writer) checkpointIfDue() {
	if w.file == nil || w.commits-w.checkpointed < commitsBetweenCheckpoints && !w.isLow() {
		return
	}
	w.checkpointed = w.commits
	w.file.checkpoint()
}

// ensureOpen opens the file if it is not open: it is closed after an error that the
// connection may have caused.
func (w *writer) ensureOpen() (err error) {
	if w.file == nil {
		w.file, err = w.open()
	}
	return err
}

// attempt executes a request in memory.
func (w *writer) attempt(r *request) (err error) {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx) // the caller does not wait any more
	}
	if r.act == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = w.wrap(fmt.Errorf("semaphore %q: panic: %v; it is read again from the file", r.name, p))
			if r.entry != nil {
				r.entry.panicked = err
			}
		}
	}()
	if r.entry, err = w.lookup(r.name); err != nil {
		return w.wrap(err)
	}
	return r.act(w.now(), r.entry)
}

// lookup returns the entry of a semaphore, from memory or else from the file.
func (w *writer) lookup(name string) (*entry, error) {
	k := w.entries[name]
	if k == nil {
		if w.file == nil {
			return nil, errBroken
		}
		stored, err := w.file.load(name)
		if err != nil {
			w.closeBroken()
			return nil, err
		}
		if k, err = restore(name, stored); err != nil {
			return nil, err
		}
		w.entries[name] = k
		delete(w.unread, name)
	}
	if !k.touched {
		k.touched = true
		w.touched = append(w.touched, k)
	}
	return k, nil
}

// commit writes the changes of the group. Without changes there is no transaction.
func (w *writer) commit() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	changed := make([]*entry, 0, len(w.touched))
	for _, k := range w.touched {
		if k.panicked == nil && k.collect() {
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

// discardTouched removes the entries of the group from memory after a failed commit.
// The file has its old content or, if the disk failed at the very end, the new content.
// So the entries are read again from the file.
func (w *writer) discardTouched() {
	for _, k := range w.touched {
		delete(w.entries, k.name)
		if w.live[k.name] != nil {
			delete(w.live, k.name)
			w.unread[k.name] = true
		}
	}
	if w.file != nil && w.file.rollback() != nil {
		w.closeBroken()
	}
}

// closeBroken closes the file, so that it is opened again for the next group.
func (w *writer) closeBroken() {
	if w.file != nil {
		w.file.close() // the connection is broken: its error does not matter
		w.file = nil
	}
}

// A notification is the name of a changed semaphore, for an instance.
type notification struct{ instance, fullName string }

// finishCommit updates the maps after a commit, when memory matches the file, and
// returns the notifications to send.
func (w *writer) finishCommit() (notifications []notification) {
	for _, k := range w.touched {
		k.touched = false
		if k.panicked != nil || k.state == nil {
			delete(w.entries, k.name)
			delete(w.live, k.name)
			continue
		}
		if k.state.TickEvery() > 0 {
			w.live[k.name] = k
		} else {
			delete(w.live, k.name)
		}
		for _, id := range k.state.Woken() {
			notifications = append(notifications, notification{k.state.Instance(id), k.name})
		}
	}
	return notifications
}

// resultOf returns the result of a request. failed is the error of the commit, or nil.
func (w *writer) resultOf(r *request, failed error) error {
	switch {
	case failed != nil:
		return w.wrap(failed)
	case r.entry != nil && r.entry.panicked != nil:
		return r.entry.panicked
	case r.err != nil:
		return r.err
	case r.read == nil:
		return nil
	case w.file == nil:
		return w.wrap(errBroken)
	}
	if err := r.read(w.file); err != nil {
		return w.wrap(err)
	}
	return nil
}

func (w *writer) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.close()
}
