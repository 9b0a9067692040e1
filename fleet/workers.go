package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// workers are goroutines whose lifetime is that of a client or a region. A few idle ones are
// reused: most stores need more stack than a new goroutine has, and growing it takes longer
// than all other work of a client for an acquire.
type workers struct {
	life     context.Context
	kill     context.CancelFunc
	group    sync.WaitGroup
	starting sync.Mutex // held to start a worker, and to end life; no worker starts after that
	idle     atomic.Int64
	more     chan func() // work for idle workers
}

// maxIdle bounds the idle workers.
const maxIdle = 2

// begin initializes w.
func (w *workers) begin() {
	w.life, w.kill = context.WithCancel(context.Background())
	w.more = make(chan func())
}

// start runs work in a worker. It returns false after end.
func (w *workers) start(work func()) bool {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.life.Err() != nil {
		return false
	}
	select {
	case w.more <- work:
	default:
		w.group.Add(1)
		go func() { // not group.Go: diagnostics would assume that the caller passes its permits on
			defer w.group.Done()
			w.run(work)
		}()
	}
	return true
}

// join counts the caller as a worker, until it calls group.Done. It returns false after
// end.
func (w *workers) join() bool {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.life.Err() != nil {
		return false
	}
	w.group.Add(1)
	return true
}

func (w *workers) run(work func()) {
	for {
		work()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case work = <-w.more:
			w.idle.Add(-1)
		case <-w.life.Done():
			return
		}
	}
}

// end cancels life, and waits for the workers.
func (w *workers) end() {
	w.starting.Lock()
	w.kill()
	w.starting.Unlock()
	w.group.Wait()
}

// within returns a context that ends with life, after d, or when the limit is reached. It has
// no timer until Done is called: most stores only read the deadline.
func (w *workers) within(d time.Duration, l limit) *bounded {
	deadline := time.Now().Add(d)
	if !l.at.IsZero() && l.at.Before(deadline) {
		deadline = l.at
	}
	return &bounded{Context: w.life, deadline: deadline, caller: l.ctx}
}

// A bounded is a context with a deadline.
type bounded struct {
	context.Context // workers.life
	deadline        time.Time
	caller          context.Context // also ends it; nil: none

	mu     sync.Mutex
	timed  context.Context // nil until Done is called
	cancel context.CancelFunc
	stop   func() bool // ends the watch of caller
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.cancel = context.WithDeadline(b.Context, b.deadline)
		if b.caller != nil {
			b.stop = context.AfterFunc(b.caller, b.cancel)
		}
	}
	return b.timed.Done()
}

func (b *bounded) Err() error {
	switch err := b.inner().Err(); {
	case err != nil:
		return err
	case b.caller != nil && b.caller.Err() != nil:
		return b.caller.Err()
	case time.Now().Before(b.deadline):
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context]. Package context uses it to derive contexts without a
// goroutine for each.
func (b *bounded) Value(key any) any { return b.inner().Value(key) }

// AfterAbandoned calls f in a goroutine of its own when the caller of the exchange gives up. A
// store that reads the deadline needs no timer then, nor the channel of Done.
func (b *bounded) AfterAbandoned(f func()) (stop func() bool) {
	if b.caller == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(b.caller, f)
}

func (b *bounded) inner() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed != nil {
		return b.timed
	}
	return b.Context
}

// release stops the timer and the watch of the caller. It is called when the call is over.
func (b *bounded) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	if b.cancel != nil {
		b.cancel()
	}
}
