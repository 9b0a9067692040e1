package measure

import (
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
)

// A Sample is one value of a metric.
type Sample struct {
	Desc   *Desc
	Values []string // of the labels, in the order of [Desc.LabelNames]
	Value  float64
}

// Collect yields the samples of all gates. Distributions are read from the recorders.
func (s *Set) Collect(yield func(Sample)) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	now := s.count()
	s.settle(now)
	oldest := oldestHolds()
	for i := range now.limits {
		c := collector{s, &now.limits[i], labelOf(&now.limits[i]), yield}
		c.common(oldest)
		c.details()
		c.classes()
	}
	for name, k := range now.keyed {
		s.collectKeys(label{name, backendProcess}, k, yield)
	}
	for _, series := range s.Series() {
		series.collect(now.labels[label{series.Semaphore, series.Backend}], yield)
	}
	for as, n := range now.clashes {
		yield(Sample{nameClashes, []string{as.backend, as.name}, float64(n)})
	}
	s.collectOwn(yield)
}

// oldestHolds returns the ages of the oldest recorded permits by the name of their gate.
func oldestHolds() map[string]time.Duration {
	oldest := map[string]time.Duration{}
	for _, h := range sema.Holders() {
		oldest[h.Name] = max(oldest[h.Name], h.Age)
	}
	return oldest
}

// A collector yields the samples of one gate.
type collector struct {
	set   *Set
	limit *registry.Limit
	as    label
	yield func(Sample)
}

func (c *collector) add(d *Desc, value float64, labels ...string) {
	c.yield(Sample{d, append([]string{c.as.backend, c.as.name}, labels...), value})
}

// addCount adds a counter.
func (c *collector) addCount(d *Desc, n int64, labels ...string) { c.add(d, float64(n), labels...) }

// common adds what all gates have.
func (c *collector) common(oldest map[string]time.Duration) {
	st := &c.limit.Stats
	if st.Capacity < sema.MaxCapacity {
		c.addCount(capacity, st.Capacity)
	}
	c.addCount(inUse, st.InUse)
	c.addCount(debt, st.Debt)
	c.addCount(waiters, int64(st.Waiters))
	c.add(isDraining, oneIf(st.Draining))
	c.add(isClosed, oneIf(st.Closed))
	c.addCount(acquires, st.Acquired, resultNames[resultAcquired])
	c.addCount(acquires, st.TimedOut, resultNames[resultTimeout])
	c.addCount(acquires, st.Cancelled, resultNames[resultCanceled])
	c.addCount(acquires, st.Rejected, resultNames[resultRejected])
	c.addCount(waits, st.Waited)
	c.add(waitSeconds, st.WaitTime.Seconds())
	if c.limit.Configured {
		c.add(wrongSetting, oneIf(c.limit.Problem != nil))
	}
	if age, ok := oldest[eventName(c.limit)]; ok {
		c.add(oldestHold, age.Seconds())
	}
	c.set.noteAcquired(c.as, "", st.Acquired)
}

// details adds what only some kinds of gates have.
func (c *collector) details() {
	switch st := c.limit.Details.(type) {
	case pool.Stats:
		c.pool(&st)
	case group.Stats:
		c.addCount(groupRunning, st.Running)
		c.addCount(groupFailures, st.Failed)
	case admit.Stats:
		c.admit(&st)
	case fleet.Stats:
		c.fleet(&st)
	}
	if g, ok := c.limit.Gate.(*rate.Gate); ok {
		n, per, _ := g.Rate()
		c.add(rateLimit, float64(n)/per.Seconds())
	}
}

func (c *collector) pool(st *pool.Stats) {
	for _, state := range []struct {
		name string
		n    int64
	}{{"idle", st.Idle}, {"lent", st.Lent}, {"kept", st.Kept}, {"opening", st.Opening}, {"checking", st.Checking}, {"closing", st.Closing}} {
		c.addCount(poolItems, state.n, state.name)
	}
	c.addCount(poolPending, st.Pending)
	c.addCount(poolOpens, st.Opens)
	c.addCount(poolOpenErrors, st.OpenErrors)
	c.addCount(poolCloses, st.Closes)
	c.addCount(poolExpired, st.Expired)
	c.addCount(poolDiscards, st.Discards)
	c.addCount(poolChecks, st.Checks-st.CheckErrors, "ok")
	c.addCount(poolChecks, st.CheckErrors, "error")
}

func (c *collector) admit(st *admit.Stats) {
	for _, reason := range admit.Reasons() {
		c.addCount(sheds, st.Shed[reason], reason.String())
	}
	c.addCount(degraded, st.Degraded)
	c.addCount(clamped, st.Clamped)
	c.add(shedding, oneIf(st.Shedding))
	for _, state := range []admit.State{admit.Closed, admit.Open, admit.HalfOpen} {
		c.add(breaker, oneIf(st.Breaker == state), state.String())
	}
	if st.Limit > 0 {
		c.addCount(adaptive, st.Limit)
	}
}

func (c *collector) fleet(st *fleet.Stats) {
	c.addCount(leaseHeld, st.Held)
	c.addCount(renewals, st.Heartbeats, "ok")
	c.addCount(renewals, st.HeartbeatsFailed, "error")
	c.addCount(leasesLost, st.Lost.Expired, "expired")
	c.addCount(leasesLost, st.Lost.Forgotten, "forgotten")
	c.addCount(leasesLost, st.Lost.Revoked, "revoked")
	c.addCount(leasesLost, st.Lost.Closed, "closed")
	c.addCount(exchanges, st.Batches)
	c.add(exchangeTime, st.ExchangeTime.Seconds())
	c.addCount(exchangeFails, st.Failures)
	c.addCount(notifications, st.Notifications)
	c.addCount(sessionsLost, st.SessionsLost)
	c.add(failedOpen, oneIf(st.FailedOpen))
	c.addCount(heldOpen, st.HeldOpen)
}

// collect yields what events have added up to. counted states that Stats has counted acquires.
func (s *Series) collect(counted bool, yield func(Sample)) {
	if s.Class != "" {
		return // of classes, only distributions come from events
	}
	add := func(d *Desc, value float64, labels ...string) {
		yield(Sample{d, append([]string{s.Backend, s.Semaphore}, labels...), value})
	}
	if !counted { // granted acquires are not counted: only a sample of them is observed
		for _, result := range []int{resultTimeout, resultCanceled, resultRejected} {
			add(acquires, float64(s.results[result].Load()), resultNames[result])
		}
	}
	add(acquires, float64(s.results[resultError].Load()), resultNames[resultError])
	add(headAge, s.headAge().Seconds())
	// Counters that may matter when they count for the first time start at 0: Prometheus sees
	// no increase in a series that appears with another value.
	for i, reason := range reasonNames {
		if n := s.reasons[i].Load(); n > 0 || i < commonReasons {
			add(rejections, float64(n), reason)
		}
	}
	for i := range reportKinds {
		add(diagnostics, float64(s.reports[i].Load()), reportKinds[i].name)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// An atOnce adds up acquires that were granted at once. Observers receive only a sample of
// them; they are what remains of all granted acquires without those that waited.
type atOnce struct {
	granted int64 // at the last update
	waited  int64 // at the last update
	ahead   int64 // waits that were recorded and not yet counted as granted, as a negative number
	total   int64
}

// update returns the number of acquires granted at once, given all that were granted and
// those that waited. It never decreases, although the two are read at different moments.
func (a *atOnce) update(granted, waited int64) int64 {
	if granted < a.granted { // another gate of the same name
		a.granted = 0
	}
	a.ahead += (granted - a.granted) - (waited - a.waited)
	a.granted, a.waited = granted, waited
	if a.ahead > 0 {
		a.total += a.ahead
		a.ahead = 0
	}
	return a.total
}

// noteAcquired notes how many acquires the gate, or a class, has granted.
func (s *Set) noteAcquired(as label, class string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if series := s.list[labels{as.backend, as.name, class}]; series != nil {
		series.granted.Store(n)
	}
}
