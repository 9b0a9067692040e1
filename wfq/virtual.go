package wfq

// The queue serves the class with the least virtual time: the permit-nanoseconds that it
// has used while callers waited, divided by its weight. To a class that holds permits it
// adds what they will still use, by the mean time for which the class holds a permit.
// Without that a class of long holds would be served many times before its use shows. No
// permit has a timestamp: at each event of a class, start grows by what was in use since
// the last one.
//
// Virtual time is relative to the virtual time of the tier. A class that begins to wait
// starts at the tier's, so that it earns nothing by having been idle, unless it is ahead:
// then it keeps its own, so that a pause does not forgive what it has used.

// A busyClock measures the time during which callers wait. Use is counted in it: while no
// caller waits, nothing is charged.
type busyClock struct {
	total int64 // until the last stop
	since int64 // of the last start
}

func (b *busyClock) startLocked(q *Queue) { b.since = q.now }
func (b *busyClock) stopLocked(q *Queue)  { b.total += q.now - b.since }

// at returns the time on the clock.
func (b *busyClock) at(q *Queue) int64 {
	if q.waiters == 0 {
		return b.total
	}
	return b.total + q.now - b.since
}

// A meanHold estimates for how long permits are held, by Little's law: the permit-ns used
// over the permits released. Old values fade.
type meanHold struct {
	work, permits float64
	releases      int
}

// holdWindow is the number of releases after which old values count half.
const holdWindow = 64

func (m *meanHold) used(work float64) { m.work += work }

func (m *meanHold) released(n int64) {
	m.permits += float64(n)
	if m.releases++; m.releases >= holdWindow {
		m.work, m.permits, m.releases = m.work/2, m.permits/2, holdWindow/2
	}
}

// mean returns the estimate in ns. The prior counts as one permit.
func (m *meanHold) mean(prior float64) float64 { return (m.work + prior) / (m.permits + 1) }

// meanLocked returns the mean hold of a class in ns.
func (c *class) meanLocked() float64 { return c.hold.mean(c.q.hold.mean(0)) }

// permitLocked returns the virtual time that a permit of the class is expected to take.
func (c *class) permitLocked() float64 { return c.meanLocked() / float64(c.share.Weight) }

// integrateLocked adds what the class has used since the last call. It must be called
// before inUse or the weight changes.
func (c *class) integrateLocked() {
	q := c.q
	at := q.busy.at(q)
	if at == c.at {
		return
	}
	if q.spends { // a class is charged when its permits are spent, see asked
		q.hold.used(float64(c.inUse.Load()) * float64(at-c.at))
	} else if inUse := c.inUse.Load() - c.asking; inUse > 0 {
		work := float64(inUse) * float64(at-c.at)
		c.chargeLocked(work)
		c.hold.used(work)
		q.hold.used(work)
	}
	if q.blocker == c {
		c.chargeLocked(float64(q.reserved) * float64(at-c.at))
	}
	c.at = at
}

// keyLocked returns the virtual time of the class, with what its permits will still use.
func (c *class) keyLocked() float64 {
	inUse := c.inUse.Load()
	if inUse == 0 {
		return c.start
	}
	used := 0.0 // what integrateLocked will add
	if !c.q.spends {
		used = float64(inUse-c.asking) * float64(c.q.busy.at(c.q)-c.at)
	}
	return c.start + (used+float64(inUse)*c.meanLocked())/float64(c.share.Weight)
}

// chargeLocked charges the class for permit-nanoseconds.
func (c *class) chargeLocked(work float64) {
	c.start += work / float64(c.share.Weight)
	c.tier.furthest = max(c.tier.furthest, c.start)
}

// catchUpLocked moves a class that begins to compete to the virtual time of its tier.
//
// One that has competed before may be behind by one permit of its own or of its rival: a
// class with a single caller, or at its limit, competes only now and then, and would lose
// that each time. One that has
// not starts a quarter of a permit later. So a succession of classes that come once
// advances the virtual time: when those that came before are served, only later ones are
// left.
func (c *class) catchUpLocked() {
	c.tier.advanceLocked(c.q)
	from := c.tier.virtual
	if c.hold.permits == 0 {
		from += c.permitLocked() / 4
	} else if least := c.tier.leastLocked(); least != nil {
		from -= max(c.permitLocked(), least.permitLocked())
	}
	if behind := from - c.keyLocked(); behind > 0 {
		c.start += behind
	}
}

// aheadLocked reports whether the class has used more than its share.
func (c *class) aheadLocked() bool {
	c.tier.advanceLocked(c.q)
	return c.start > c.tier.virtual
}

// advanceLocked advances the virtual time of the tier to the least of the classes that
// compete. So a class that comes later has the same chances as they, whatever they have
// used before.
//
// While none competes, it grows as fast as that of a single class could, which bounds the
// time until a class that is ahead is forgotten. It stops when none is ahead, or else it
// would lose precision over the years.
func (t *tier) advanceLocked(q *Queue) {
	passed := float64(q.now - t.at)
	t.at = q.now
	next := min(t.virtual+passed*float64(q.capacity), t.furthest)
	if least := t.leastLocked(); least != nil {
		next = least.heap.entries[0].key
	}
	t.virtual = max(t.virtual, next)
}

// leastLocked returns the class of the tier with the least virtual time, or nil.
func (t *tier) leastLocked() *class {
	a, b := t.entitled.leastLocked(), t.sharing.leastLocked()
	if a == nil || b != nil && b.heap.entries[0].key < a.heap.entries[0].key {
		return b
	}
	return a
}
