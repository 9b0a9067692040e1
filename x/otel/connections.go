package otel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sema-go/sema/x/internal/measure"
)

// connections exports gates by the semantic conventions for pools of database connections.
type connections struct {
	names    map[string]bool
	observed []metric.Observable

	count, most, pending metric.Float64ObservableUpDownCounter
	timeouts             metric.Float64ObservableCounter
	waitTime, useTime    metric.Float64Histogram
}

const (
	poolName  = attribute.Key("db.client.connection.pool.name")
	poolState = attribute.Key("db.client.connection.state")
)

func newConnections(m metric.Meter, names []string) (*connections, error) {
	c := &connections{names: map[string]bool{}}
	for _, name := range names {
		c.names[name] = true
	}
	const prefix = "db.client.connection."
	var errs [6]error
	about := metric.WithDescription
	c.count, errs[0] = m.Float64ObservableUpDownCounter(prefix+"count", metric.WithUnit("{connection}"), about("Connections, by state."))
	c.most, errs[1] = m.Float64ObservableUpDownCounter(prefix+"max", metric.WithUnit("{connection}"), about("Connections that may be open."))
	c.pending, errs[2] = m.Float64ObservableUpDownCounter(prefix+"pending_requests", metric.WithUnit("{request}"), about("Callers that wait for a connection."))
	c.timeouts, errs[3] = m.Float64ObservableCounter(prefix+"timeouts", metric.WithUnit("{timeout}"), about("Callers that waited for too long."))
	c.waitTime, errs[4] = m.Float64Histogram(prefix+"wait_time", metric.WithUnit("s"), about("How long callers that waited got no connection."), metric.WithExplicitBucketBoundaries(secondBounds...))
	c.useTime, errs[5] = m.Float64Histogram(prefix+"use_time", metric.WithUnit("s"), about("How long connections were lent, of a sample."), metric.WithExplicitBucketBoundaries(secondBounds...))
	c.observed = []metric.Observable{c.count, c.most, c.pending, c.timeouts}
	return c, errors.Join(errs[:]...)
}

// observe observes what a sample means for a pool. Callers that wait are added to pending.
func (c *connections) observe(o metric.Observer, s *measure.Sample, pending map[string]float64) {
	if len(s.Values) < 2 || !c.names[s.Values[1]] {
		return
	}
	name := s.Values[1]
	set := func(i metric.Float64Observable, more ...attribute.KeyValue) {
		o.ObserveFloat64(i, s.Value, metric.WithAttributes(append(more, poolName.String(name))...))
	}
	switch what := s.Desc.Name; {
	case what == "sema_permits_capacity":
		set(c.most)
	case what == "sema_pool_items" && s.Values[2] == "idle":
		set(c.count, poolState.String("idle"))
	case what == "sema_permits_in_use":
		set(c.count, poolState.String("used"))
	case what == "sema_waiters", what == "sema_pool_pending":
		pending[name] += s.Value
	case what == "sema_acquires_total" && s.Values[2] == "timeout":
		set(c.timeouts)
	}
}

// observePending observes the callers that wait, for a permit or for an item.
func (c *connections) observePending(o metric.Observer, pending map[string]float64) {
	for name, n := range pending {
		o.ObserveFloat64(c.pending, n, metric.WithAttributes(poolName.String(name)))
	}
}
