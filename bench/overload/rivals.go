package overload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bohde/codel"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"
	"github.com/platinummonkey/go-concurrency-limits/strategy/matchers"
	"golang.org/x/sync/semaphore"
)

// longQueue is the bound of waiting requests for libraries that need one: the wait budget
// is what bounds the queue.
const longQueue = 10_000

func rivals() []Implementation {
	return []Implementation{
		{Name: "x/sync, deadline only", Make: func([]Class) Gate { return weighted(0) }},
		{Name: "x/sync, wait budget", Make: func([]Class) Gate { return weighted(WaitBudget) }},
		{Name: "chi Throttle", Unweighted: true, Make: throttle},
		{Name: "failsafe bulkhead", Unweighted: true, Make: failsafeBulkhead},
		{Name: "failsafe adaptive limiter", Unweighted: true, Make: func([]Class) Gate { return failsafeAdaptive(Slots, Slots) }},
		{Name: "failsafe priority limiter", Unweighted: true, Make: func([]Class) Gate { return failsafePriority(Slots, Slots) }},
		{Name: "go-concurrency-limits, fixed", Unweighted: true, Make: concurrencyFixed},
		{Name: "bohde/codel", Unweighted: true, Make: codelLock},
		{Name: "aegis BBR", Adapts: true, Unbounded: true, Unweighted: true, Make: aegisBBR},

		{Name: "failsafe adaptive, unknown capacity", Adapts: true, Unweighted: true, Make: func([]Class) Gate { return failsafeAdaptive(unknownStart, unknownMax) }},
		{Name: "failsafe priority, unknown capacity", Adapts: true, Unweighted: true, Make: func([]Class) Gate { return failsafePriority(unknownStart, unknownMax) }},
		{Name: "go-concurrency-limits, Vegas", Adapts: true, Unweighted: true, Make: func([]Class) Gate {
			return concurrencyLimiter(limit.NewDefaultVegasLimit("", nil, nil), strategy.NewSimpleStrategy(unknownStart))
		}},
		{Name: "go-concurrency-limits, Gradient2", Adapts: true, Unweighted: true, Make: func([]Class) Gate {
			return concurrencyLimiter(limit.NewDefaultGradient2Limit("", nil, nil), strategy.NewSimpleStrategy(unknownStart))
		}},
	}
}

// weighted returns x/sync's semaphore, with a wait budget or none.
func weighted(budget time.Duration) Gate {
	s := semaphore.NewWeighted(Slots)
	return Gate{Admit: func(ctx context.Context, _ string, cost int64) (func(Ending), error) {
		if budget > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, budget)
			defer cancel()
		}
		return func(Ending) { s.Release(cost) }, s.Acquire(ctx, cost)
	}}
}

func failsafeBulkhead([]Class) Gate {
	b := bulkhead.NewBuilder[any](Slots).WithMaxWaitTime(WaitBudget).Build()
	return Gate{Admit: func(ctx context.Context, _ string, _ int64) (func(Ending), error) {
		return func(Ending) { b.ReleasePermit() }, b.AcquirePermitWithMaxWait(ctx, WaitBudget)
	}}
}

// failsafeQueue are the factors of the limit between which failsafe-go rejects more and more
// of the requests that would wait: those of its priority limiter.
const failsafeQueueFrom, failsafeQueueTo = 2, 3

func failsafeAdaptive(start, most uint) Gate {
	l := adaptivelimiter.NewBuilder[any]().WithLimits(1, most, start).WithQueueing(failsafeQueueFrom, failsafeQueueTo).Build()
	return Gate{
		Admit: func(ctx context.Context, _ string, _ int64) (func(Ending), error) {
			p, err := l.AcquirePermitWithMaxWait(ctx, WaitBudget)
			return recorder(p), err
		},
		InUse: func() int64 { return int64(l.Inflight()) },
	}
}

// failsafePriority returns a limiter that prefers the users that have used less.
func failsafePriority(start, most uint) Gate {
	builder := adaptivelimiter.NewPrioritizerBuilder().WithUsageTracker(priority.NewUsageTracker(10*time.Second, 100))
	prioritizer := builder.Build()
	l := adaptivelimiter.NewBuilder[any]().WithLimits(1, most, start).BuildPrioritized(prioritizer)
	ctx, cancel := context.WithCancel(context.Background())
	prioritizer.ScheduleCalibrations(ctx, time.Second)
	return Gate{
		Admit: func(ctx context.Context, class string, _ int64) (func(Ending), error) {
			ctx = priority.ContextWithPriority(ctx, priority.Medium)
			if class != "" {
				ctx = priority.ContextWithUser(ctx, class)
			}
			p, err := l.AcquirePermitWithMaxWait(ctx, WaitBudget)
			return recorder(p), err
		},
		InUse: func() int64 { return int64(l.Inflight()) },
		Stop:  cancel,
	}
}

func recorder(p adaptivelimiter.Permit) func(Ending) {
	return func(o Ending) {
		if o == OK {
			p.Record()
		} else {
			p.Drop()
		}
	}
}

// concurrencyFixed returns go-concurrency-limits with a fixed limit, and a part of it for
// each class.
func concurrencyFixed(classes []Class) Gate {
	fixed := limit.NewFixedLimit("", Slots, nil)
	if len(classes) == 0 {
		return concurrencyLimiter(fixed, strategy.NewSimpleStrategy(Slots))
	}
	sum, parts := int64(0), map[string]*strategy.LookupPartition{}
	for _, c := range classes {
		sum += c.Weight
	}
	for _, c := range classes {
		share := float64(c.Weight) / float64(sum) * (1 - 1e-9) // the sum must not exceed 1
		parts[c.Name] = strategy.NewLookupPartitionWithMetricRegistry(c.Name, share, 1, core.EmptyMetricRegistryInstance)
	}
	s, err := strategy.NewLookupPartitionStrategyWithMetricRegistry(parts, nil, Slots, core.EmptyMetricRegistryInstance)
	must(err)
	return concurrencyLimiter(fixed, s)
}

// concurrencyLimiter returns go-concurrency-limits with a queue that is bounded by the wait
// budget, and the windows of its defaults.
func concurrencyLimiter(l core.Limit, s core.Strategy) Gate {
	inner, err := limiter.NewDefaultLimiter(l, int64(time.Second), int64(time.Second), int64(100*time.Microsecond), 100, s, limit.NoopLimitLogger{}, nil)
	must(err)
	outer := limiter.NewQueueBlockingLimiterFromConfig(inner, limiter.QueueLimiterConfig{
		Ordering: limiter.OrderingFIFO, MaxBacklogSize: longQueue, MaxBacklogTimeout: WaitBudget, BacklogEvictDoneCtx: true,
	})
	return Gate{Admit: func(ctx context.Context, class string, _ int64) (func(Ending), error) {
		if class != "" {
			ctx = context.WithValue(ctx, matchers.LookupPartitionContextKey, class)
		}
		listener, ok := outer.Acquire(ctx)
		if !ok {
			return nil, errRejected
		}
		return func(o Ending) {
			switch o {
			case OK:
				listener.OnSuccess()
			case Late:
				listener.OnDropped()
			case Left:
				listener.OnIgnore()
			}
		}, nil
	}}
}

func codelLock([]Class) Gate {
	l := codel.New(codel.Options{MaxPending: longQueue, MaxOutstanding: Slots, TargetLatency: 5 * time.Millisecond})
	return Gate{Admit: func(ctx context.Context, _ string, _ int64) (func(Ending), error) {
		return func(Ending) { l.Release() }, l.Acquire(ctx)
	}}
}

// throttle adapts a middleware, whose handler runs while the request does.
func throttle([]Class) Gate {
	type call struct{ admitted, ended chan struct{} }
	type key struct{}
	wrap := middleware.ThrottleBacklog(Slots, longQueue, WaitBudget)
	handler := wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(key{}).(*call)
		close(c.admitted)
		<-c.ended
	}))
	return Gate{Admit: func(ctx context.Context, _ string, _ int64) (func(Ending), error) {
		c := &call{make(chan struct{}), make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(context.WithValue(ctx, key{}, c))
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-c.admitted:
			return func(Ending) { close(c.ended); <-served }, nil
		case <-served:
			return nil, errRejected
		}
	}}
}
