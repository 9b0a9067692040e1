package group

import (
	"context"
	"time"

	"github.com/sema-go/sema/internal/list"
	"github.com/sema-go/sema/internal/waitclock"
)

// A job is a function that waits for a permit.
//
// Its caller waits too, until a goroutine runs the function or ctx ends. The exception are
// accepted jobs: calls of Go that returned in advance, see jobs.
type job struct {
	node     list.Node[*job]
	ctx      context.Context
	number   uint64 // counts the jobs of a group: jobs are reused
	n        int64
	fn       func(ctx context.Context) error
	advance  bool       // may be accepted: a call of Go
	accepted bool       // the caller does not wait any more
	done     chan error // buffered; ends the wait of the caller. Unused if it never waited
	waited   bool
}

// jobs are the functions that wait for permits, in the order of their calls.
//
// While functions are short, a hand-off between the caller of Go and a goroutine costs more
// than the function. So up to maxAccepted calls return in advance, and the goroutines
// switch once for many functions. Functions that take longer are never accepted: what they
// need, memory for example, then is that of those that run.
type jobs struct {
	queue    list.List[*job]
	added    uint64
	waits    waitclock.Clock
	accepted int
	short    bool // functions took at most shortFunction lately
	long     int  // of the last functions took longer
	spare    []*job
}

const (
	// maxAccepted is the largest number of accepted jobs.
	maxAccepted = 256
	// shortFunction is the longest duration of a short function.
	shortFunction = 50 * time.Microsecond
)

// add appends a job.
func (q *jobs) add(ctx context.Context, n int64, fn func(ctx context.Context) error, advance bool) *job {
	var j *job
	if last := len(q.spare) - 1; last >= 0 {
		j = q.spare[last]
		q.spare = q.spare[:last]
	} else {
		j = &job{done: make(chan error, 1)}
		j.node.Of = j
	}
	q.added++
	j.number, j.ctx, j.n, j.fn, j.advance = q.added, ctx, n, fn, advance
	q.waits.Change(q.queue.Len(), q.queue.Len()+1)
	q.queue.PushBack(&j.node)
	return j
}

// first returns the first job, or nil.
func (q *jobs) first() *job {
	if n := q.queue.First(); n != nil {
		return n.Of
	}
	return nil
}

// remove removes a job.
func (q *jobs) remove(j *job) {
	q.waits.Change(q.queue.Len(), q.queue.Len()-1)
	q.queue.Remove(&j.node)
	if j.accepted {
		q.accepted--
	}
}

// recycle keeps a job for reuse. It must not be in the queue, and no caller may wait for it.
func (q *jobs) recycle(j *job) {
	j.ctx, j.fn, j.accepted, j.waited = nil, nil, false, false
	q.spare = append(q.spare, j)
}

// measured records how long a function took. One long function among short ones may be due
// to the scheduler; two in a row are long.
func (q *jobs) measured(took time.Duration) {
	if took <= shortFunction {
		q.short, q.long = true, 0
	} else if q.long++; q.long > 1 {
		q.short = false
	}
}

// accept marks a job as accepted, if it may be.
func (q *jobs) accept(j *job) bool {
	if !q.short || !j.advance || j.accepted || q.accepted >= maxAccepted {
		return false
	}
	j.accepted = true
	q.accepted++
	return true
}

// refill accepts jobs whose callers wait, once half of the accepted ones have run. It
// yields them. A caller then is woken once for many functions.
func (q *jobs) refill(yield func(*job) bool) {
	if !q.short || q.accepted > maxAccepted/2 || q.accepted == q.queue.Len() {
		return
	}
	for j := range q.queue.All {
		if q.accept(j) && !yield(j) {
			return
		}
	}
}
