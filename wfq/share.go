package wfq

import (
	"fmt"
	"time"

	"github.com/sema-go/sema"
)

// A Share is what a class may use of its queue. The zero Share has weight 1 and no bounds.
type Share struct {
	// Weight is the share of what is contended, relative to other classes of the same
	// tier, at most a million. 0 means 1.
	Weight int64
	// Min is guaranteed: a waiter with whose permits the class uses at most Min is served
	// before all others, whatever their tiers. What the class does not use is lent to
	// others, so the guarantee takes effect as permits are released. It needs a capacity of
	// at least the sum of all Mins: otherwise higher tiers come first.
	Min int64
	// Max is never exceeded. 0 means the capacity of the queue.
	Max int64
	// Tier ranks the class: waiters of a higher tier are served first. The option [Aging]
	// bounds how long lower tiers can starve.
	Tier int
	// Order selects which waiter of the class is served next. Default FIFO.
	Order Order
	// MaxWaiters bounds the waiters of the class. 0 means no bound of its own,
	// [sema.NoWaiters] that no caller waits.
	MaxWaiters int
	// MaxWait bounds each wait in the class. 0 means no bound of its own. Of this and the
	// option [sema.MaxWait], the shorter applies.
	MaxWait time.Duration
}

// An Order selects which waiter of a class is served next.
type Order uint8

const (
	// FIFO serves waiters in order of arrival. It is the default.
	FIFO Order = iota
	// LIFO serves the newest waiter first. Under overload it serves some callers quickly,
	// while the oldest time out.
	LIFO
	// CoDel serves in order of arrival, and sheds waiters under overload. The class is
	// overloaded if its oldest waiter had waited for more than 5 ms throughout the last
	// 100 ms. Then waiters of more than 10 ms are rejected with [ErrOverloaded] when it is
	// their turn.
	CoDel
	// AdaptiveLIFO serves in order of arrival, and the newest first under overload, as
	// CoDel defines it. It sheds nothing: set MaxWait.
	AdaptiveLIFO
)

var orderNames = [...]string{"FIFO", "LIFO", "CoDel", "AdaptiveLIFO"}

// String returns the name of the order.
func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return fmt.Sprintf("Order(%d)", uint8(o))
}

// maxWeight bounds weights, so that the charge of a short hold is not lost in rounding.
const maxWeight = 1_000_000

// normalise returns the share with defaults filled in. It panics on values that make no
// sense.
func (s Share) normalise(op, class string) Share {
	if s.Weight == 0 {
		s.Weight = 1
	}
	switch {
	case s.Weight > maxWeight:
		panic(fmt.Sprintf("wfq: %s(%q, %+v): want a Weight of at most %d", op, class, s, maxWeight))
	case s.Weight < 0 || s.Min < 0 || s.Max < 0 || s.MaxWait < 0 || s.MaxWaiters < sema.NoWaiters || int(s.Order) >= len(orderNames):
	case s.Max > 0 && s.Min > s.Max:
	default:
		return s
	}
	panic(fmt.Sprintf("wfq: %s(%q, %+v): want values ≥ 0, Min at most Max, and an Order of package wfq", op, class, s))
}

// limit returns the number of permits that the class may hold at once.
func (s Share) limit() int64 {
	if s.Max == 0 {
		return sema.MaxCapacity
	}
	return min(s.Max, sema.MaxCapacity)
}
