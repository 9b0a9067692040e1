package overload

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/sema-go/sema/admit"
)

// A breaker lets a call pass, or not. report is called with the result, unless the call
// never reports one.
type breaker struct {
	name string
	ours bool
	make func() (allow func() (report func(ok bool), allowed bool))
}

// What all breakers are configured with.
const (
	breakerWindow = 10 * time.Second
	breakerCalls  = 20
	breakerRatio  = 0.5
	breakerOpen   = time.Second
	breakerProbes = 3
)

var breakers = []breaker{
	{"sema/admit.Breaker", true, func() func() (func(bool), bool) {
		b := admit.NewBreaker(admit.BreakerConfig{
			Window: breakerWindow, MinCalls: breakerCalls, FailureRatio: breakerRatio, OpenFor: breakerOpen, MaxOpenFor: breakerOpen,
			Probes: breakerProbes, ProbeTimeout: time.Second,
		})
		return func() (func(bool), bool) {
			a, err := b.Allow()
			return func(ok bool) {
				if ok {
					a.Done(admit.OK, 0)
				} else {
					a.Done(admit.Failed, 0)
				}
			}, err == nil
		}
	}},
	{"gobreaker", false, func() func() (func(bool), bool) {
		b := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
			MaxRequests: breakerProbes, Interval: breakerWindow, BucketPeriod: breakerWindow / 10, Timeout: breakerOpen,
			ReadyToTrip: func(c gobreaker.Counts) bool {
				return c.Requests >= breakerCalls && float64(c.TotalFailures) >= breakerRatio*float64(c.Requests)
			},
		})
		return func() (func(bool), bool) {
			done, err := b.Allow()
			return func(ok bool) {
				if ok {
					done(nil)
				} else {
					done(errRejected)
				}
			}, err == nil
		}
	}},
	{"failsafe circuit breaker", false, func() func() (func(bool), bool) {
		b := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(breakerRatio, breakerCalls, breakerWindow).
			WithDelay(breakerOpen).WithSuccessThreshold(breakerProbes).Build()
		return func() (func(bool), bool) {
			return func(ok bool) {
				if ok {
					b.RecordSuccess()
				} else {
					b.RecordFailure()
				}
			}, b.TryAcquirePermit()
		}
	}},
}

// The calls that breakers are asked for. The dependency fails for some time; one call in
// twenty never reports its result, as that of a handler that was killed.
const (
	breakerRuns       = 20 // seeds
	breakerGap        = 10 * time.Millisecond
	breakerTakes      = 30 * time.Millisecond
	breakerUnreported = 0.05
	breakerFor        = 40 * time.Second
)

var breakerFails = Span{3 * time.Second, 10 * time.Second}

// A BreakerResult is what a breaker made of one seed.
type BreakerResult struct {
	Failed    int           // calls that passed and failed
	Recovered time.Duration // until the last rejection; never: they did not
	Wedged    bool          // no call passed in the last seconds
}

// breakOnce runs the calls of a seed. It must be called in a testing/synctest bubble.
func breakOnce(name string, seed uint64) (r BreakerResult) {
	allow := breakerByName(name).make()
	rng := rand.New(rand.NewPCG(seed, 2))
	start := time.Now()
	var lastRejected, lastPassed time.Duration
	var calls sync.WaitGroup
	for at := time.Duration(0); at < breakerFor; at = time.Since(start) {
		unreported, ok := rng.Float64() < breakerUnreported, !breakerFails.contains(at)
		if report, allowed := allow(); allowed {
			lastPassed = at
			if !ok {
				r.Failed++
			}
			calls.Go(func() {
				time.Sleep(breakerTakes)
				if !unreported {
					report(ok)
				}
			})
		} else {
			lastRejected = at
		}
		time.Sleep(max(1, time.Duration(rng.ExpFloat64()*float64(breakerGap))))
	}
	calls.Wait()
	r.Wedged = lastPassed < breakerFor-5*time.Second
	if r.Recovered = max(0, lastRejected-breakerFails.To); lastRejected > breakerFor-time.Second {
		r.Recovered = never
	}
	return r
}

func breakerByName(name string) breaker {
	for _, b := range breakers {
		if b.name == name {
			return b
		}
	}
	panic("overload: no breaker " + name)
}
