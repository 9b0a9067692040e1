// Package tally counts the calls of a gate for [sema.Stats].
package tally

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// A Tally contains the counters of one gate. The zero Tally is ready for use. All
// methods may be called concurrently.
type Tally struct {
	acquired atomic.Int64

	mu      sync.Mutex // guards the fields below, which change only when a call waits or fails
	counts  sema.Counts
	waiting int       // calls that wait now
	last    time.Time // when waiting changed
}

// Acquired counts a permit that was granted.
func (t *Tally) Acquired() { t.acquired.Add(1) }

// Queued counts a call that begins to wait.
func (t *Tally) Queued() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Waited++
	t.changeLocked(+1)
}

// Dequeued counts the end of a wait.
func (t *Tally) Dequeued() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(-1)
}

// changeLocked changes the number of waiting calls. The caller holds t.mu.
func (t *Tally) changeLocked(by int) {
	now := time.Now()
	t.counts.WaitTime += time.Duration(t.waiting) * now.Sub(t.last)
	t.waiting, t.last = t.waiting+by, now
}

// Failed counts a call that ended with err. If queued is true, the call had to wait.
func (t *Tally) Failed(err error, queued bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if facts := (*sema.Error)(nil); errors.As(err, &facts) && !errors.Is(err, sema.ErrTimeout) {
		queued = false // the context has not ended: an error of the gate counts as rejected, or not at all
	}
	t.counts.Failed(err, queued)
}

// Waiting returns the number of calls that wait now.
func (t *Tally) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// Counts returns the current values of the counters.
func (t *Tally) Counts() sema.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(0)
	counts := t.counts
	counts.Acquired = t.acquired.Load()
	return counts
}
