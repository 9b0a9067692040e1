package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// workers are goroutines that end with a life. A few of them wait for more work:
// the stack of a new one is too small for what most stores do, and to have it
// grow takes longer than all else that a client does for an acquire.
type workers struct {
	life     context.Context
	kill     context.CancelFunc
	group    sync.WaitGroup
	starting sync.Mutex // held to start one, and to end the life after which none is
	idle     atomic.Int64
	more     chan func() // for those who wait
}

// maxIdle is how many wait.
const maxIdle = 2

// begin begins the life.
func (w *workers) begin() {
	w.life, w.kill = context.WithCancel(context.Background())
	w.more = make(chan func())
}

// start has one do something, unless the life is over.
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
		go func() { // not by group.Go: diagnostics would take the caller for one that hands its permits over
			defer w.group.Done()
			w.do(work)
		}()
	}
	return true
}

// join has the caller be one of them, until leave, unless the life is over.
func (w *workers) join() bool {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.life.Err() != nil {
		return false
	}
	w.group.Add(1)
	return true
}

func (w *workers) leave() { w.group.Done() }

func (w *workers) do(work func()) {
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

// end ends the life, and waits for them.
func (w *workers) end() {
	w.starting.Lock()
	w.kill()
	w.starting.Unlock()
	w.group.Wait()
}

// within is a context for a call that ends with the life, or after some time. It
// has no timer unless somebody asks for Done: most stores only read the deadline.
func (w *workers) within(d time.Duration) *bounded {
	return &bounded{Context: w.life, deadline: time.Now().Add(d)}
}

// A bounded is a context with a deadline.
type bounded struct {
	context.Context // the life
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context // nil until somebody has asked for Done
	cancel context.CancelFunc
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.cancel = context.WithDeadline(b.Context, b.deadline)
	}
	return b.timed.Done()
}

func (b *bounded) Err() error {
	if err := b.inner().Err(); err != nil || time.Now().Before(b.deadline) {
		return err
	}
	return context.DeadlineExceeded
}

// Value is how package context finds out what it can make children of without a
// goroutine for each.
func (b *bounded) Value(key any) any { return b.inner().Value(key) }

func (b *bounded) inner() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed != nil {
		return b.timed
	}
	return b.Context
}

// end is when the call is over.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
