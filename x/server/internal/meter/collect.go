package meter

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Collector exports the series of a meter to Prometheus.
type Collector struct {
	descs map[string]*prometheus.Desc
}

// NewCollector returns a collector. backend is the value of the label of that name.
func NewCollector(backend string) *Collector {
	c := &Collector{descs: map[string]*prometheus.Desc{}}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{"sema_permits_capacity", "Capacity of the semaphore, as configured.", nil},
		{"sema_permits_in_use", "Permits in use.", nil},
		{"sema_permits_debt", "Permits in use beyond the capacity after a shrink.", nil},
		{"sema_waiters", "Queued acquires.", nil},
		{"sema_draining", "1 if the semaphore is draining.", nil},
		{"sema_head_of_queue_age_seconds", "How long the first acquire of the queue has waited; 0: none waits.", nil},
		{"sema_oldest_hold_seconds", "How long the oldest lease has been held; 0: none.", nil},
		{"sema_acquires_total", "Acquires over HTTP, RPC and by Go clients, by result.", []string{"outcome"}},
		{"sema_waits_total", "Acquires that were queued, whatever their result.", nil},
		{"sema_wait_seconds_total", "Time that acquires were queued, including those queued now.", nil},
		{"sema_acquire_rejections_total", "Acquires rejected without queueing, by reason.", []string{"reason"}},
		{"sema_leases_lost_total", "Leases that ended without a release, by reason.", []string{"reason"}},
		{"sema_lease_renewals_total", "Heartbeats that renewed leases, by result.", []string{"result"}},
		{"sema_acquire_wait_seconds", "From the request to the grant, or to the end of the wait, by result.", []string{"outcome"}},
		{"sema_hold_seconds", "From the grant to release, revocation or expiry.", nil},
	} {
		c.descs[d.name] = prometheus.NewDesc(d.name, d.help, append([]string{"semaphore"}, d.labels...), prometheus.Labels{"backend": backend})
	}
	return c
}

// Of returns a collector of the semaphores of a meter whose names have a prefix. Unless the states
// of [Meter.Observe] are fresh, it leaves out the gauges that depend on them: a monitor must not
// take the past for the present.
func (c *Collector) Of(m *Meter, prefix string, fresh bool) prometheus.Collector {
	return &collection{c, m, prefix, fresh}
}

type collection struct {
	*Collector
	meter  *Meter
	prefix string
	fresh  bool
}

// Describe implements [prometheus.Collector].
func (c *collection) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collection) Collect(out chan<- prometheus.Metric) {
	all, _ := c.meter.All()
	now := time.Now()
	for _, s := range all {
		switch {
		case s.Name == FoldedName && (c.prefix != "" || s.active.Load() == time.Time{}.UnixNano()):
			continue // a principal with a prefix must not see what others do
		case s.Name != FoldedName && !strings.HasPrefix(s.Name, c.prefix):
			continue
		}
		c.collect(s, now, out)
	}
}

func (c *collection) collect(s *Series, now time.Time, out chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.descs[name], kind, value, append([]string{s.Name}, labels...)...)
	}
	if state := s.State(); c.fresh && (state.Known || s.declared && s.Name != FoldedName) {
		open := c.meter.Open(s.Name)
		age := func(since time.Time) float64 {
			if since.IsZero() {
				return 0
			}
			return max(0, now.Sub(since).Seconds())
		}
		draining := 0.0
		if state.Draining {
			draining = 1
		}
		send(prometheus.GaugeValue, "sema_permits_capacity", float64(state.Capacity))
		send(prometheus.GaugeValue, "sema_permits_in_use", float64(state.InUse))
		debt := max(0, state.InUse-state.Effective)
		if state.Rate {
			debt = 0
		}
		send(prometheus.GaugeValue, "sema_permits_debt", float64(debt))
		send(prometheus.GaugeValue, "sema_waiters", float64(state.Waiting))
		send(prometheus.GaugeValue, "sema_draining", draining)
		send(prometheus.GaugeValue, "sema_head_of_queue_age_seconds", age(open.HeadSince))
		send(prometheus.GaugeValue, "sema_oldest_hold_seconds", age(open.OldestHoldSince))
	}
	for o := range results {
		send(prometheus.CounterValue, "sema_acquires_total", float64(s.acquires[o].Load()), o.String())
	}
	send(prometheus.CounterValue, "sema_waits_total", float64(s.queued.Load()))
	send(prometheus.CounterValue, "sema_wait_seconds_total", c.meter.queuedIn(s, now).Seconds())
	for l := range losts {
		send(prometheus.CounterValue, "sema_leases_lost_total", float64(s.lost[l].Load()), l.String())
	}
	for r := range renewals {
		send(prometheus.CounterValue, "sema_lease_renewals_total", float64(s.renewals[r].Load()), r.String())
	}
	for reason, n := range s.Rejections() {
		send(prometheus.CounterValue, "sema_acquire_rejections_total", float64(n), reason)
	}
	for o := range results {
		c.histogram(&s.waits[o], "sema_acquire_wait_seconds", out, s.Name, o.String())
	}
	c.histogram(&s.holds, "sema_hold_seconds", out, s.Name)
}

// histogram sends a histogram under the name and labels of a series.
func (c *collection) histogram(p *atomic.Pointer[prometheus.Histogram], name string, out chan<- prometheus.Metric, labels ...string) {
	if h := p.Load(); h != nil {
		out <- labelled{*h, c.descs[name], prometheus.MakeLabelPairs(c.descs[name], labels)}
	}
}

// A labelled metric has the description and the labels of a series. A histogram with both kinds
// of buckets cannot be sent as a constant metric.
type labelled struct {
	prometheus.Metric
	desc   *prometheus.Desc
	labels []*dto.LabelPair
}

// Desc implements [prometheus.Metric].
func (l labelled) Desc() *prometheus.Desc { return l.desc }

// Write implements [prometheus.Metric].
func (l labelled) Write(out *dto.Metric) error {
	err := l.Metric.Write(out)
	out.Label = l.labels
	return err
}

// Rejections returns how many acquires were rejected without queueing, by reason. The reasons
// that every semaphore may have are included before the first rejection: Prometheus would not
// see the increase of a counter that begins with it.
func (s *Series) Rejections() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]uint64{"full": 0, "queue-full": 0}
	for reason, n := range s.reasons {
		all[reason] = n
	}
	return all
}

// Lost returns how many leases were lost.
func (s *Series) Lost() (n uint64) {
	for l := range losts {
		n += s.lost[l].Load()
	}
	return n
}
