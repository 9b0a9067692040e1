package group

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// workers are the goroutines of a group.
//
// A caller of Go that finds a free permit hands it to an idle goroutine, or to a new one.
// If none is free, its function becomes a job, and one goroutine waits at the gate on behalf
// of all jobs: the delegate. A goroutine that finishes a function takes the next job, under
// the permit that it has. So as long as functions are short, nothing moves at the gate.
//
// No function waits in vain: while there are jobs there is a delegate, which has the place
// in the queue of the gate that the first of them would have. Nor is there a place in that
// queue for which there is no job: it would delay other users of the gate.
type workers struct {
	all sync.WaitGroup

	mu       sync.Mutex // guards what follows
	jobs     jobs
	idle     []chan task
	delegate bool // there is one; always while there are jobs
	place    place
	running  int // goroutines that have a permit, or are about to get one
	most     int // as many had a permit when none was free; 0: unknown
	tally    tally
	ended    bool
}

// A task is a function with the permit to run it, or, without a function, the task of the
// delegate.
type task struct {
	fn     func(ctx context.Context) error
	permit sema.Permit
}

// A place is that of the delegate in the queue of the gate.
type place struct {
	n     int64           // permits that it waits for; 0: it does not wait
	ctx   context.Context // ends the wait; nil: to be created. One serves many waits
	leave context.CancelFunc
}

// keepFor is how long a permit may be kept for further functions.
const keepFor = 100 * time.Microsecond

// start runs fn when n permits are acquired. It returns an error if ctx or the group ends
// before, or if the gate rejects the request. With advance it may return before, and an
// error then is one of the group.
func (w *workers) start(ctx context.Context, g *Group, n int64, fn func(ctx context.Context) error, advance bool) error {
	w.mu.Lock()
	if w.jobs.first() == nil && (w.most == 0 || w.running < w.most) {
		w.running++
		w.mu.Unlock()
		p, err := g.gate.TryAcquire(g.ctx, n)
		w.mu.Lock()
		switch {
		case err == nil:
			w.runLocked(g, task{fn, p})
			w.mu.Unlock()
			return nil
		case !errors.Is(err, sema.ErrFull):
			w.running--
			w.tally.Failed(err, false)
			w.mu.Unlock()
			return err
		}
		w.running--
		w.most = w.running
	}
	j := w.jobs.add(ctx, n, fn, advance)
	if !w.delegate {
		w.delegateLocked(g)
	}
	if w.jobs.accept(j) {
		g.functions.Add(1)
		w.mu.Unlock()
		return nil
	}
	j.waited = true
	w.mu.Unlock()
	return w.wait(ctx, g, j)
}

// run runs fn under p.
func (w *workers) run(g *Group, p sema.Permit, fn func(ctx context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
	w.runLocked(g, task{fn, p})
}

// rejected counts a function that does not run because no permit was free at once.
func (w *workers) rejected(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.Failed(err, false)
}

// runLocked runs a task that running counts.
func (w *workers) runLocked(g *Group, t task) {
	g.functions.Add(1)
	w.tally.Acquired++
	w.tally.started(t.permit.Weight())
	w.assignLocked(g, t)
}

// assignLocked gives a task to an idle goroutine, or to a new one.
func (w *workers) assignLocked(g *Group, t task) {
	if n := len(w.idle); n > 0 {
		w.idle[n-1] <- t
		w.idle = w.idle[:n-1]
		return
	}
	w.all.Add(1)
	go w.work(g, make(chan task, 1), t)
}

// wait waits until the job is accepted or a goroutine runs it, or returns why none does.
func (w *workers) wait(ctx context.Context, g *Group, j *job) error {
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	case <-g.ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !j.node.In() || j.accepted {
		return <-j.done // sent when it was removed or accepted
	}
	w.jobs.remove(j)
	w.jobs.recycle(j)
	w.leaveLocked()
	err := context.Cause(ctx)
	if err == nil {
		err = context.Cause(g.ctx)
	}
	w.tally.Failed(err, true)
	return err
}

// firstLocked returns the first job whose context has not ended, or nil. It rejects those
// before.
func (w *workers) firstLocked(g *Group) *job {
	for {
		j := w.jobs.first()
		if j == nil || j.ctx.Err() == nil {
			return j
		}
		w.rejectLocked(g, j, context.Cause(j.ctx))
	}
}

// takeLocked removes a job. The function that it returns is counted as one of the group, and
// must be run. It accepts jobs in its place, and returns how many.
func (w *workers) takeLocked(g *Group, j *job) (fn func(ctx context.Context) error, accepted int) {
	fn = j.fn
	w.jobs.remove(j)
	w.tally.Acquired++
	if !j.accepted {
		g.functions.Add(1)
		j.done <- nil
	} else if !j.waited {
		w.jobs.recycle(j)
	}
	for j := range w.jobs.refill {
		g.functions.Add(1)
		j.done <- nil
		accepted++
	}
	return fn, accepted
}

// rejectLocked removes a job that does not run. If its caller has returned, the error is one
// of the group.
func (w *workers) rejectLocked(g *Group, j *job, err error) {
	w.jobs.remove(j)
	w.tally.Failed(err, true)
	if !j.accepted {
		j.done <- err
		return
	}
	g.fail(err)
	g.functions.Done()
}

// work runs tasks, as the body of a goroutine, until the group ends.
func (w *workers) work(g *Group, next chan task, t task) {
	defer w.all.Done()
	for {
		if t.fn == nil {
			if t = w.represent(g); t.fn != nil {
				// The next delegate is to acquire a free permit now. It is likely queued
				// behind this goroutine, which would have returned its own permit before:
				// few permits would be used while processors are idle.
				runtime.Gosched()
			}
		}
		if t.fn != nil {
			w.perform(g, t)
		}
		w.mu.Lock()
		if w.ended {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, next)
		w.mu.Unlock()
		var ok bool
		if t, ok = <-next; !ok {
			return
		}
	}
}

// perform runs a function, and others that wait, under one permit.
func (w *workers) perform(g *Group, t task) {
	defer func() { // also if a function ends its goroutine
		t.permit.Release()
		w.mu.Lock()
		w.running--
		w.tally.finished(t.permit.Weight())
		w.mu.Unlock()
	}()
	var kept, last time.Time // since when the permit is kept for further functions, and the end of the last one
	for further := 0; ; further++ {
		g.call(t.permit, t.fn)
		// A permit that can be lost, or that is spent, is not kept.
		if !t.permit.Held() || t.permit.Lost() != nil {
			return
		}
		now := time.Now()
		w.mu.Lock()
		if further == 0 {
			kept = now
		} else {
			w.jobs.measured(now.Sub(last))
		}
		j := w.firstLocked(g)
		if j == nil || j.n != t.permit.Weight() || now.Sub(kept) > keepFor || g.ctx.Err() != nil {
			w.mu.Unlock()
			return
		}
		var callers int
		t.fn, callers = w.takeLocked(g, j)
		w.leaveLocked()
		w.mu.Unlock()
		last = now
		if callers > 0 {
			// The callers that were woken are to run before the jobs are used up. The time
			// that they take is not time of functions.
			runtime.Gosched()
			paused := time.Since(now)
			kept, last = kept.Add(paused), last.Add(paused)
		}
	}
}

// represent acquires permits for the first job, and returns its function. It returns no
// function if there is no job any more.
func (w *workers) represent(g *Group) task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for j := w.firstLocked(g); j != nil; j = w.firstLocked(g) {
		n, number := j.n, j.number
		ctx := w.queueLocked(g, n)
		w.mu.Unlock()
		p, err := g.gate.Acquire(ctx, n)
		w.mu.Lock()
		w.place.n = 0
		j = w.firstLocked(g)
		switch {
		case err == nil && j != nil && j.n == n:
			fn, _ := w.takeLocked(g, j)
			w.running++
			w.tally.started(n)
			w.most = max(w.most, w.running)
			w.delegateLocked(g)
			return task{fn, p}
		case err == nil: // for a job that has left
			w.mu.Unlock()
			p.Release()
			w.mu.Lock()
		case j != nil && j.number == number: // and not one for which the wait began too early
			w.rejectLocked(g, j, err)
		}
	}
	w.delegate = false
	return task{}
}

// queueLocked returns the context in which the delegate waits for n permits.
func (w *workers) queueLocked(g *Group, n int64) context.Context {
	w.place.n = n
	if w.place.ctx == nil {
		w.place.ctx, w.place.leave = context.WithCancel(g.ctx)
	}
	return w.place.ctx
}

// leaveLocked ends the wait of the delegate at the gate if the first job does not need what
// it waits for.
func (w *workers) leaveLocked() {
	if first := w.jobs.first(); w.place.n > 0 && (first == nil || first.n != w.place.n) {
		w.place.leave()
		w.place = place{}
	}
}

// delegateLocked makes another goroutine the delegate, if there are jobs.
func (w *workers) delegateLocked(g *Group) {
	if w.delegate = w.jobs.first() != nil; w.delegate {
		w.assignLocked(g, task{})
	}
}

// end ends all goroutines, which have no functions any more, and waits for them.
func (w *workers) end() {
	w.mu.Lock()
	w.ended = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
	w.mu.Unlock()
	w.all.Wait()
}
