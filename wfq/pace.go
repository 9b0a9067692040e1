package wfq

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
)

// A pace is how fast the waiters of a class leave its queue: the permits for which they have
// waited, and the time during which any did. The expected wait alone is too short for a class
// that others overtake: it knows their waiters, and not those that will arrive.
type pace struct {
	permits, waited float64
	since           int64 // until when waited counts
}

const (
	paceWindow = 32 // permits after which old values count half
	paceHolds  = 64 // or mean holds, so that a time without service is forgotten soon after it ends
	pacePrior  = 4  // permits that the expected wait counts as
)

// startLocked begins to count, with the first waiter.
func (p *pace) startLocked(now int64) { p.since = now }

// stopLocked ends it, when none is left.
func (p *pace) stopLocked(now int64) {
	p.waited += float64(now - p.since)
	p.since = now
}

// leftLocked records that a waiter for n permits of the class leaves the queue, and those
// behind it advance.
func (c *class) leftLocked(n int64) {
	p := &c.pace
	p.stopLocked(c.q.now)
	p.permits += float64(n)
	if p.permits >= paceWindow || p.waited >= paceHolds*c.q.hold.mean(0) {
		p.permits, p.waited = p.permits/2, p.waited/2
	}
}

// pacedWaitLocked returns how many ns a caller of one permit would wait behind the waiters of
// the class, at the pace that they have. expected is the estimate for a class without one.
func (c *class) pacedWaitLocked(expected float64) float64 {
	own := float64(c.queued + 1)
	waited := c.pace.waited + float64(c.q.now-c.pace.since)
	return (own*waited + pacePrior*expected) / (c.pace.permits + pacePrior)
}

// waitedTooLong reports whether a caller gives up because its context has ended by time. Such
// callers are no pace: counted, they would make room for others that wait in vain, too.
func waitedTooLong(why error) bool {
	c, ok := why.(cancelled)
	return ok && (errors.Is(c.cause, sema.ErrTimeout) || errors.Is(c.cause, context.DeadlineExceeded))
}
