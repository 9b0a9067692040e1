package wfq

import (
	"runtime"
	"time"

	"github.com/sema-go/sema"
)

// Forecast returns what [Class.Acquire] of n permits would do now: how long it is expected
// to wait, or the sentinel that it would fail with at once: ErrTooLarge, ErrQueueFull,
// ErrDraining or ErrClosed. The wait is that of [Class.ExpectedWait], but positive whenever
// the caller would be queued. Forecast allocates nothing, so that callers can be rejected
// cheaply.
func (c *Class) Forecast(n int64) (wait time.Duration, err error) {
	wait, err = c.class.forecast(n)
	runtime.KeepAlive(c)
	return wait, err
}

func (c *class) forecast(n int64) (time.Duration, error) {
	q := c.q
	if n > 0 && q.word.Load()-uint64(n) <= uint64(sema.MaxCapacity) && c.inUse.Load()+n <= c.limit.Load() {
		return 0, nil // the queue is calm, and enough is free
	}
	q.lock()
	defer q.unlock()
	w := waiter{class: c, n: n, level: c.share.Tier}
	if err := q.phaseErrorLocked(); err != nil {
		return 0, err
	}
	if q.tooLargeLocked(&w) {
		return 0, sema.ErrTooLarge
	}
	if n <= 0 || q.waiters == 0 && n <= q.free && c.inUse.Load()+n <= c.limit.Load() {
		return 0, nil
	}
	if _, ok := c.roomLocked(&w); !ok {
		return 0, sema.ErrQueueFull
	}
	return max(1, c.expectedWaitLocked(n)), nil
}
