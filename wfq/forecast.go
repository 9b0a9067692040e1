package wfq

import (
	"math"
	"runtime"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/seal"
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

// CautiousWait returns how long a caller of one permit has to be prepared to wait: the
// expected wait, or that at the pace at which the class was served lately, and a margin. It is for package admit, which rejects callers that would
// probably wait in vain.
func (c *Class) CautiousWait(seal.Key) time.Duration {
	c.class.q.lock()
	defer c.class.q.unlock()
	return c.class.cautiousWaitLocked()
}

// The margin is a part of the expected wait: for the error of the mean hold, and for how
// much the sum of the holds ahead varies, which is less the more there are, and more if few
// of them have most of the weight.
const (
	estimateMargin = 0.1
	varianceMargin = 1.0 // for a single hold
)

// cautiousWaitLocked returns the expected wait while few callers wait: without them permits would
// be unused when some return. Otherwise it minds the pace of the class, and adds a margin.
func (c *class) cautiousWaitLocked() time.Duration {
	expected := c.expectedWaitLocked(1)
	if int64(c.q.waiters) < c.q.capacity {
		return expected
	}
	wait := float64(expected)
	if c.waiters > 0 {
		wait = max(wait, c.pacedWaitLocked(wait))
	}
	own := float64(c.queued + 1)
	cautious := wait * (1 + estimateMargin + varianceMargin*math.Sqrt(c.squares+1)/own)
	if cautious >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(cautious)
}

// Calm reports whether [Class.TakeCalm] would have succeeded now.
func (c *Class) Calm(_ seal.Key, n int64) bool { return c.class.monitor == nil && c.class.calm(n) }

func (c *class) calm(n int64) bool {
	return n > 0 && c.q.word.Load()-uint64(n) <= uint64(sema.MaxCapacity) && c.inUse.Load()+n <= c.limit.Load()
}

// TakeCalm acquires n permits as [Class.TryAcquire] does, if no caller waits and enough are
// free. It fails, and counts nothing, if the queue has to decide. It is for package admit,
// which has checked the context.
func (c *Class) TakeCalm(_ seal.Key, n int64) (p sema.Permit, ok bool) {
	if k := c.class; k.monitor == nil && k.take(n) {
		p, ok = k.issuer.Permit(n), true
	}
	runtime.KeepAlive(c)
	return p, ok
}

func (c *class) forecast(n int64) (time.Duration, error) {
	q := c.q
	if c.calm(n) {
		return 0, nil
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
