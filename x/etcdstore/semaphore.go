package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A semaphore is one that this process uses. One goroutine at a time, the
// worker, has its view; it lives while there are calls. What is called for
// meanwhile is the next group: all of it goes into one write, so that however
// many call, each write to etcd is shared, and processes contend with each
// other, not goroutines.
type semaphore struct {
	store    *Store
	view     view // the worker's
	troubled bool // the worker's; there is trouble

	mu      sync.Mutex
	waiting []*call
	works   bool
	hinted  bool  // somebody else has written: it is better to read first
	trouble error // why there are no answers; nil: there are
	used    time.Time
}

// A call is what one caller wants.
type call struct {
	ctx    context.Context
	name   string // among calls of all processes
	size   int
	alone  bool // its group is its own
	batch  *protocol.Batch
	act    func(protocol.Micros, *view) outcome
	made   time.Time
	ended  chan outcome // buffered
	last   outcome      // of the present attempt
	unsure []attempted
}

// An outcome is what a call ends with.
type outcome struct {
	session  protocol.Session
	config   protocol.Config
	reply    protocol.Reply
	snapshot protocol.Snapshot
	err      error
}

// An attempted outcome is one of which it is not known whether it was written.
type attempted struct {
	attempt string
	outcome outcome
	deletes int64 // the life of the semaphore that it deletes; 0: it deletes none
}

// A group is bounded, so that those in it do not wait for ever more of those
// who came after them, and its entry is not too large.
const (
	maxGroup = 512
	maxSize  = 256 << 10 // bytes, or thereabouts
)

// sizeOf is about how much of an entry a batch takes.
func sizeOf(b protocol.Batch) int {
	size := 200
	for _, op := range b.Ops {
		size += 150 + len(op.Meta)
	}
	return size
}

// await has the worker serve a call, and is over as soon as its context is. What
// was called for may still happen.
func (s *semaphore) await(c *call) outcome {
	c.ended, c.made = make(chan outcome, 1), time.Now()
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.used = c.made
	if !s.works {
		s.works = s.store.start(s.work)
	}
	works := s.works
	s.mu.Unlock()
	if !works {
		return outcome{err: errClosed}
	}
	select {
	case o := <-c.ended:
		return o
	case <-c.ctx.Done():
		return outcome{err: s.late(context.Cause(c.ctx))}
	}
}

// late is the error of a caller who did not wait any longer, with what is in the
// way, if that is known.
func (s *semaphore) late(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != nil {
		return fmt.Errorf("%w: %w", cause, s.trouble)
	}
	return cause
}

func (s *semaphore) note(trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble, s.troubled = trouble, trouble != nil
}

func (s *semaphore) work() {
	for {
		group, hinted := s.take()
		if len(group) == 0 {
			return
		}
		s.view.fresh = false
		if hinted && s.view.loaded {
			s.view.stale = true
		}
		s.serve(group)
	}
}

// take is the next group. If there is none, the worker's work is over.
func (s *semaphore) take() (group []*call, hinted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for len(s.waiting) > 0 && len(group) < maxGroup && (len(group) == 0 || size < maxSize && !s.waiting[0].alone) {
		c := s.waiting[0]
		group, size = append(group, c), size+c.size
		s.waiting = s.waiting[1:]
		if c.alone {
			break
		}
	}
	s.works = len(group) > 0
	hinted, s.hinted = s.hinted, false
	return group, hinted
}

// hint is that somebody else has written.
func (s *semaphore) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hinted = true
}

// endurance is for how long a call goes on after failures that may pass, as when
// the leader changes, if its context lets it.
const endurance = 10 * time.Second

// serve goes on until all of a group are answered.
func (s *semaphore) serve(group []*call) {
	t := &turn{semaphore: s, view: &s.view, calls: group}
	for pause := firstPause; ; {
		t.calls = slices.DeleteFunc(t.calls, abandoned)
		if len(t.calls) == 0 {
			return
		}
		err := t.attempt()
		if err == nil {
			if s.troubled {
				s.note(nil)
			}
			continue
		}
		if isLate(err) {
			err = s.store.diagnose(err)
		}
		s.note(s.store.fault(err))
		s.view.unload()
		if !passes(err) {
			t.fail(err, time.Time{})
			return
		}
		t.fail(err, time.Now().Add(-endurance))
		if !s.store.sleep(pause) {
			t.fail(errClosed, time.Time{})
			return
		}
		pause = min(2*pause, lastPause)
	}
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 300 * time.Millisecond
)

// abandoned reports whether nobody waits for a call any more.
func abandoned(c *call) bool { return c.ctx.Err() != nil }

// end answers a call.
func (c *call) end(o outcome) { c.ended <- o }

// A turn is the work on a group.
type turn struct {
	*semaphore
	view      *view
	calls     []*call
	published bool // others were asked to take the batches along
	others    []asked
	alone     bool // it takes nothing of others along
}

// fail ends calls that were made before some time, or all if that is zero.
func (t *turn) fail(err error, before time.Time) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		ends := before.IsZero() || c.made.Before(before)
		if ends {
			c.end(outcome{err: t.store.fault(err)})
		}
		return ends
	})
}

// finish ends all calls, which are written down.
func (t *turn) finish() {
	for _, c := range t.calls {
		c.end(c.last)
	}
	t.calls = nil
}

// attempt applies the calls to what is known, and writes that down unless
// somebody else has written meanwhile: then it is known what, and there is
// another attempt.
func (t *turn) attempt() error {
	v := t.view
	if !v.loaded || v.stale {
		if err := t.read(); err != nil || !v.loaded {
			return err
		}
	}
	now, err := v.ready()
	if err != nil {
		return err
	}
	attempt := t.store.attempts.next()
	answers, ok := t.apply(now)
	if !ok {
		v.unload()
		return nil
	}
	p := v.propose(attempt, answers)
	switch {
	case p == nil && v.fresh:
		t.finish()
		return nil
	case p == nil:
		revision, life := v.revision, v.life
		if err := t.read(); err != nil {
			return err
		}
		if v.revision == revision && v.life == life {
			t.finish()
		}
		return nil
	case (v.revision == 0 || p.deletes) && !v.fresh:
		v.unload() // the floor that is known may be old
		return nil
	}
	return t.write(p)
}

// apply has the state do what is called for, by others first: they have failed
// to write. It reports whether that went well: a call that panics is ended, and
// the state it has spoilt is of no use to anybody.
func (t *turn) apply(now protocol.Micros) (answers []answer, ok bool) {
	if answers, ok = t.takeAlong(now); !ok {
		return nil, false
	}
	for i, c := range t.calls {
		if !t.act(c, now) {
			c.end(c.last)
			t.calls = slices.Delete(t.calls, i, i+1)
			return nil, false
		}
	}
	return answers, true
}

func (t *turn) act(c *call, now protocol.Micros) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			c.last = outcome{err: t.store.fault(fmt.Errorf("semaphore %q: panic: %v; it is read again", t.view.name, p))}
			ok = false
		}
	}()
	c.last = c.act(now, t.view)
	return true
}

// permanent is an error that does not pass by itself.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

var errClosed = errors.New("the store is closed")
