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

// A semaphore is one that this process uses. One goroutine at a time, the worker, has
// its view; it lives while there are calls. Calls that arrive during a write are the
// next group and share one write (group commit), so that processes contend with each
// other, not goroutines.
type semaphore struct {
	store    *Store
	view     view // the worker's
	troubled bool // the worker's: trouble is set

	mu      sync.Mutex
	waiting []*call
	works   bool
	hinted  bool  // another process has written: the worker reads first
	trouble error // why there are no replies; nil: there are
	used    time.Time
}

// A call is a request of one caller.
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

// An outcome is the result of a call.
type outcome struct {
	session  protocol.Session
	config   protocol.Config
	reply    protocol.Reply
	snapshot protocol.Snapshot
	err      error
}

// An attempted outcome may have been written or not.
type attempted struct {
	attempt string
	outcome outcome
	deletes int64 // the life of the semaphore that it deletes; 0: it deletes none
}

// A group is bounded, so that its calls do not wait for ever more that arrive after
// them, and its entry is not too large.
const (
	maxGroup = 512
	maxSize  = 256 << 10 // bytes, or thereabouts
)

// sizeOf returns about how many bytes of an entry a batch takes.
func sizeOf(b protocol.Batch) int {
	size := 200
	for _, op := range b.Ops {
		d := op.Details
		size += 150 + len(d.Site) + len(d.Labels) + len(d.Holder) + len(d.By) + len(d.Key)
	}
	return size
}

// await passes a call to the worker and waits until its context ends. The call may
// still be served after that.
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

// late returns the error of a caller whose context has ended, with the reason for the
// delay, if that is known.
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

// take returns the next group. If there is none, the worker ends.
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

// hint notes that another process has written.
func (s *semaphore) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hinted = true
}

// endurance is for how long a call is tried again after failures that may pass, as
// when the leader changes, unless its context ends before.
const endurance = 10 * time.Second

// serve attempts until all calls of a group have ended.
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

// abandoned reports whether the caller has stopped waiting.
func abandoned(c *call) bool { return c.ctx.Err() != nil }

// end replies to the caller.
func (c *call) end(o outcome) { c.ended <- o }

// A turn is the work on a group.
type turn struct {
	*semaphore
	view      *view
	calls     []*call
	published bool // its batches, for other processes to apply
	others    []publication
	alone     bool // it applies no batches of others
}

// fail ends calls that were made before some time, or all if it is zero.
func (t *turn) fail(err error, before time.Time) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		ends := before.IsZero() || c.made.Before(before)
		if ends {
			c.end(outcome{err: t.store.fault(err)})
		}
		return ends
	})
}

// finish ends all calls, which are written.
func (t *turn) finish() {
	for _, c := range t.calls {
		c.end(c.last)
	}
	t.calls = nil
}

// attempt applies the calls to what is known and writes the result (optimistic
// concurrency). If another process has written meanwhile, it learns what, and there is
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
	replies, ok := t.apply(now)
	if !ok {
		v.unload()
		return nil
	}
	p := v.propose(attempt, replies)
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

// apply applies batches of other processes first, which have failed to write, and
// then the calls. It reports false if one panics: a call that does is ended, and the
// state has to be discarded.
func (t *turn) apply(now protocol.Micros) (replies []replyTo, ok bool) {
	if replies, ok = t.combine(now); !ok {
		return nil, false
	}
	for i, c := range t.calls {
		if !t.act(c, now) {
			c.end(c.last)
			t.calls = slices.Delete(t.calls, i, i+1)
			return nil, false
		}
	}
	return replies, true
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

// A permanent error does not pass by itself.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

var errClosed = errors.New("the store is closed")
