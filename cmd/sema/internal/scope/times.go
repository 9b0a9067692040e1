package scope

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/sema-go/sema/internal/advice"
)

// Times is what is known of the waits and holds of a semaphore. Ages are known of every store that
// lists its waiters; the rest is what a server has measured. A nil field is unknown.
type Times struct {
	HeadAge    *Duration `json:"head_age,omitempty"`    // how long the first acquire of the queue has waited
	FirstNeeds int64     `json:"first_needs,omitempty"` // permits that it needs
	OldestHold *Duration `json:"oldest_hold,omitempty"`
	Window     Duration  `json:"window,omitzero"` // period of what follows; 0: not measured
	Grants     *float64  `json:"grants_per_second,omitempty"`
	WaitP50    *Duration `json:"wait_p50,omitempty"`
	WaitP99    *Duration `json:"wait_p99,omitempty"`
	HoldP50    *Duration `json:"hold_p50,omitempty"`
	HoldP99    *Duration `json:"hold_p99,omitempty"`
}

// agesOf returns the ages of the holders and waiters of a state; nil: there are none.
func agesOf(s State, now time.Time) *Times {
	t := &Times{}
	if len(s.Waiters) > 0 && !s.Waiters[0].Since.IsZero() {
		t.HeadAge, t.FirstNeeds = new(Duration(s.Waiters[0].For(now))), s.Waiters[0].Weight
	}
	for _, h := range s.Holders {
		if d := Duration(h.For(now)); !h.Since.IsZero() && (t.OldestHold == nil || d > *t.OldestHold) {
			t.OldestHold = &d
		}
	}
	if *t == (Times{}) {
		return nil
	}
	return t
}

// WithAges returns measured times, which may be nil, with the ages of the holders and waiters at a time.
func (s State) WithAges(t *Times, now time.Time) *Times {
	ages := agesOf(s, now)
	if t == nil {
		return ages
	}
	if ages == nil {
		ages = &Times{}
	}
	of := *t
	of.HeadAge, of.FirstNeeds, of.OldestHold = ages.HeadAge, ages.FirstNeeds, ages.OldestHold
	return &of
}

// A getter is a store that is a service, which measures.
type getter interface {
	Get(ctx context.Context, path string, into any) error
}

// measured is what a service responds with. Durations are in seconds.
type measured struct {
	Name  string
	Times *struct {
		Window     float64
		Grants     float64  `json:"grants_per_second"`
		HeadAge    *float64 `json:"head_age"`
		FirstNeeds int64    `json:"first_needs"`
		OldestHold *float64 `json:"oldest_hold"`
		WaitP50    *float64 `json:"wait_p50"`
		WaitP99    *float64 `json:"wait_p99"`
		HoldP50    *float64 `json:"hold_p50"`
		HoldP99    *float64 `json:"hold_p99"`
	}
}

func (m measured) times() *Times {
	if m.Times == nil {
		return nil
	}
	of := func(seconds *float64) *Duration {
		if seconds == nil {
			return nil
		}
		return new(Duration(*seconds * float64(time.Second)))
	}
	t := m.Times
	return &Times{
		HeadAge: of(t.HeadAge), FirstNeeds: t.FirstNeeds, OldestHold: of(t.OldestHold), Window: Duration(t.Window * float64(time.Second)), Grants: &t.Grants,
		WaitP50: of(t.WaitP50), WaitP99: of(t.WaitP99), HoldP50: of(t.HoldP50), HoldP99: of(t.HoldP99),
	}
}

// Measure implements [Scope].
func (s fleetScope) Measure(ctx context.Context, prefix string, states []State) {
	now := s.Now(ctx)
	for i := range states {
		states[i].Times = agesOf(states[i], now)
	}
	if s.service == nil || len(states) == 0 {
		return
	}
	if len(states) == 1 {
		var one measured
		if s.service.Get(ctx, "/v1/semaphores/"+url.PathEscape(states[0].Name)+"?limit=1", &one) == nil && one.Times != nil {
			states[0].Times = one.times()
		}
		return
	}
	found := map[string]*Times{}
	for after := ""; ; {
		var page struct {
			Semaphores []measured
			Next       string
		}
		query := url.Values{"prefix": {prefix}}
		if after != "" {
			query.Set("after", after)
		}
		if s.service.Get(ctx, "/v1/semaphores?"+query.Encode(), &page) != nil {
			break // an older service
		}
		for _, one := range page.Semaphores {
			found[one.Name] = one.times()
		}
		if after = page.Next; after == "" {
			break
		}
	}
	for i := range states {
		if t := found[states[i].Name]; t != nil {
			states[i].Times = t
		}
	}
}

// Measure implements [Scope].
func (s hostScope) Measure(ctx context.Context, _ string, states []State) {
	for i := range states {
		states[i].Times = agesOf(states[i], s.Now(ctx))
	}
}

// An Advice contains what the measurements of a semaphore mean. Durations are in seconds.
type Advice struct {
	Semaphore string           `json:"semaphore"`
	Capacity  int64            `json:"capacity"`
	Window    float64          `json:"window"` // period of the measurements; 0: nothing is measured
	Arrivals  float64          `json:"arrivals_per_second"`
	Rejected  float64          `json:"rejected_per_second"` // further acquires, which were rejected without a wait
	MeanHold  *float64         `json:"mean_hold,omitempty"`
	Load      *float64         `json:"load,omitempty"`   // permits in use on average
	Needed    int64            `json:"needed,omitempty"` // capacity at which the utilisation is 80 %
	Expected  []ExpectedWait   `json:"expected"`
	Note      string           `json:"note,omitempty"` // what load and needed leave out
	Findings  []advice.Finding `json:"findings"`
	Unknown   string           `json:"unknown,omitempty"` // what is not known, and why
}

// An ExpectedWait is the mean wait at a capacity.
type ExpectedWait struct {
	Capacity int64    `json:"capacity"`
	Wait     *float64 `json:"wait"` // nil: the queue would grow without bound
}

// notMeasured is the reason why a store without a service has no advice on the capacity.
const notMeasured = "arrivals and holds are not known: only a server measures them ('sema serve'), for the clients that use it"

// Advise implements [Scope].
func (s fleetScope) Advise(ctx context.Context, name string) (Advice, error) {
	if s.service != nil {
		var a Advice
		err := s.service.Get(ctx, "/v1/semaphores/"+url.PathEscape(name)+"/advice", &a)
		if err == nil {
			return a, nil
		}
		if !errors.Is(err, errors.ErrUnsupported) { // an older service, or no such semaphore
			return Advice{}, reached(err)
		}
	}
	return advised(ctx, s, name)
}

// Advise implements [Scope].
func (s hostScope) Advise(ctx context.Context, name string) (Advice, error) {
	return advised(ctx, s, name)
}

// advised returns the advice that follows from the present state alone.
func advised(ctx context.Context, s Scope, name string) (Advice, error) {
	state, err := s.Inspect(ctx, name)
	if err != nil {
		return Advice{}, err
	}
	f := advice.Facts{Capacity: state.Effective, InUse: state.InUse, Waiting: int64(state.Waiting), Rate: state.Window != 0, Draining: state.Draining}
	a := Advice{Semaphore: name, Capacity: state.Effective, Expected: []ExpectedWait{}, Findings: advice.Of(f).Findings, Unknown: notMeasured}
	if a.Findings == nil {
		a.Findings = []advice.Finding{}
	}
	if t := agesOf(state, s.Now(ctx)); t != nil && t.OldestHold != nil {
		a.Unknown += fmt.Sprintf("; known: the oldest permit is held for %v", time.Duration(*t.OldestHold).Round(time.Second))
	}
	return a, nil
}
