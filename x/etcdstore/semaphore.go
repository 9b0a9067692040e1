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

// A semaphore is one that this process uses. One goroutine at a time, the worker, owns its
// view; the worker runs while there are calls. Calls that arrive during a write are the
// next group and share one write (group commit), so that processes contend with each
// other, not goroutines.
type semaphore struct {
	store   *Store
	view    view // owned by the worker
	failing bool // owned by the worker: failure is set

	mu       sync.Mutex
	waiting  []*call
	working  bool
	notified bool  // another process has written: the worker reads first
	failure  error // why there are no replies; nil: there are
	used     time.Time
}

// A call is a request of one caller.
type call struct {
	ctx         context.Context
	name        string // unique among the calls of all processes
	size        int
	alone       bool // it is in a group of its own
	batch       *protocol.Batch
	act         func(protocol.Micros, *view) result
	created     time.Time
	ended       chan result // has capacity 1
	last        result      // of the present attempt
	unconfirmed []attempted // results of attempts whose replies were lost
}

// A result is the result of a call. The kind of the call decides which fields are set.
type result struct {
	session  protocol.Session
	config   protocol.Config
	reply    protocol.Reply
	snapshot protocol.Snapshot
	err      error
}

// attempted is the result of an attempt that may have been written or not.
type attempted struct {
	attempt string
	result  result
	deletes int64 // the create revision of the semaphore that it deletes; 0: it deletes none
}

// A group is bounded, so that its calls do not wait for calls that arrive after them, and
// its entry is not too large.
const (
	maxGroup = 512
	maxSize  = 256 << 10 // bytes, approximately
)

// sizeOf returns approximately how many bytes of an entry a batch takes.
func sizeOf(b protocol.Batch) int {
	size := 200
	for _, op := range b.Ops {
		size += 150
		if d := op.Details; d != nil {
			size += len(d.Site) + len(d.Labels) + len(d.Holder) + len(d.By) + len(d.Key)
		}
	}
	return size
}

// await passes a call to the worker and waits until the call or its context ends. A call
// whose context has ended may still be served.
func (s *semaphore) await(c *call) result {
	c.ended, c.created = make(chan result, 1), time.Now()
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.used = c.created
	if !s.working {
		s.working = s.store.start(s.work)
	}
	working := s.working
	s.mu.Unlock()
	if !working {
		return result{err: errClosed}
	}
	select {
	case o := <-c.ended:
		return o
	case <-c.ctx.Done():
		return result{err: s.late(context.Cause(c.ctx))}
	}
}

// late returns the error of a caller whose context has ended, with the last failure of the
// worker, if there is one.
func (s *semaphore) late(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return fmt.Errorf("%w: %w", cause, s.failure)
	}
	return cause
}

func (s *semaphore) noteFailure(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.failing = failure, failure != nil
}

func (s *semaphore) work() {
	for {
		group, notified := s.take()
		if len(group) == 0 {
			return
		}
		s.view.fresh = false
		if notified && s.view.loaded {
			s.view.stale = true
		}
		s.serve(group)
	}
}

// take returns the next group. If it is empty, the worker ends.
func (s *semaphore) take() (group []*call, notified bool) {
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
	s.working = len(group) > 0
	notified, s.notified = s.notified, false
	return group, notified
}

// noteWrite notes that another process has written.
func (s *semaphore) noteWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified = true
}

// retryFor is how long a call is retried after temporary failures, such as a change of the
// leader, unless its context ends before.
const retryFor = 10 * time.Second

// serve makes attempts until all calls of a group have ended.
func (s *semaphore) serve(group []*call) {
	t := &turn{semaphore: s, view: &s.view, calls: group}
	for pause := firstPause; ; {
		t.calls = slices.DeleteFunc(t.calls, abandoned)
		if len(t.calls) == 0 {
			return
		}
		err := t.attempt()
		if err == nil {
			if s.failing {
				s.noteFailure(nil)
			}
			continue
		}
		if isTimeout(err) {
			err = s.store.diagnose(err)
		}
		s.noteFailure(s.store.fault(err))
		s.view.unload()
		if !isTemporary(err) {
			t.fail(err, time.Time{})
			return
		}
		t.fail(err, time.Now().Add(-s.store.retryFor))
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

// end returns the result to the caller.
func (c *call) end(o result) { c.ended <- o }

// A turn is the work on one group.
type turn struct {
	*semaphore
	view      *view
	calls     []*call
	published bool // its batches are published, for other processes to apply
	others    []publication
	alone     bool // it applies no batches of others
}

// fail ends calls that were created before a time, or all if it is zero.
func (t *turn) fail(err error, before time.Time) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		ends := before.IsZero() || c.created.Before(before)
		if ends {
			c.end(result{err: t.store.fault(err)})
		}
		return ends
	})
}

// finish ends all calls, whose results are written.
func (t *turn) finish() {
	for _, c := range t.calls {
		c.end(c.last)
	}
	t.calls = nil
}

// attempt applies the calls to what is known and writes the result (optimistic
// concurrency). If another process has written meanwhile, attempt reads those entries, and
// serve makes another attempt.
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
		revision, createRevision := v.revision, v.createRevision
		if err := t.read(); err != nil {
			return err
		}
		if v.revision == revision && v.createRevision == createRevision {
			t.finish()
		}
		return nil
	case (v.revision == 0 || p.deletes) && !v.fresh:
		v.unload() // the floor that is known may be old
		return nil
	}
	return t.write(p)
}

// apply applies the batches first that other processes have published, and then the calls.
// It reports false if one panics. A call that panics is ended, and the state has to be
// discarded.
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
			c.last = result{err: t.store.fault(fmt.Errorf("semaphore %q: panic: %v; it is read again", t.view.name, p))}
			ok = false
		}
	}()
	c.last = c.act(now, t.view)
	return true
}

// A permanent error stays the same in a retry.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

var errClosed = errors.New("the store is closed")
