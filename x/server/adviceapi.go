package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sema-go/sema/internal/advice"
	"github.com/sema-go/sema/x/server/internal/history"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// An adviceText is the advice for a semaphore in JSON.
type adviceText struct {
	Semaphore string           `json:"semaphore"`
	Capacity  int64            `json:"capacity"`
	Window    seconds          `json:"window"`              // period of the measurements
	Arrivals  float64          `json:"arrivals_per_second"` // acquires that were granted, or have waited and were not
	Rejected  float64          `json:"rejected_per_second"` // further acquires, which were rejected without a wait
	Hold      *seconds         `json:"mean_hold,omitempty"` // absent: no lease has ended in the window
	Load      *float64         `json:"load,omitempty"`      // permits in use on average, by Little's law
	Needed    int64            `json:"needed,omitempty"`    // capacity at which the utilisation is 80 %
	Expected  []expectedText   `json:"expected"`            // mean wait by capacity
	Note      string           `json:"note,omitempty"`      // what load and needed leave out
	Findings  []advice.Finding `json:"findings"`            // most important first
	Unknown   string           `json:"unknown,omitempty"`   // why load, needed and expected are absent
}

// An expectedText is the mean wait at a capacity in JSON.
type expectedText struct {
	Capacity int64    `json:"capacity"`
	Wait     *seconds `json:"wait"` // null: the queue would grow without bound
}

// facts returns what is known of a semaphore.
func (s *service) facts(ctx context.Context, name string) (advice.Facts, error) {
	snapshot, err := s.watches.recent(ctx, name)
	if err != nil {
		return advice.Facts{}, err
	}
	now := time.Now()
	summary := snapshot.Summary(name)
	state := stateOf(summary)
	f := advice.Facts{Capacity: state.Effective, InUse: state.InUse, Waiting: state.Waiting, Rate: state.Rate, Draining: state.Draining, Period: meter.Window}
	for _, l := range snapshot.Leases {
		f.OldestHold = max(f.OldestHold, s.sampler.storeTime(now).Sub(instant(l.Since)))
	}
	if series := s.meter.Series(name); series != nil {
		m := series.Figures(now)
		f.Period, f.Arrivals, f.Rejected, f.Holds, f.Waits = m.Period, max(0, m.Arrivals-m.Rejected), m.Rejected, m.Holds, m.Waits
		f.Hold, f.WaitP99, f.HoldP50, f.HoldP99 = time.Duration(m.Held*float64(time.Second)), m.WaitP99, m.HoldP50, m.HoldP99
		if m.Grants > 0 {
			f.Weight = m.Demand / m.Grants
		}
	}
	past := s.history.Curve(name, now.Add(-history.Long), now).Points
	f.UsualHold = usualHold(past, now)
	for _, p := range past {
		f.Peak = max(f.Peak, p.InUse)
	}
	if len(past) > 0 {
		f.Past = now.Sub(past[0].At)
	}
	return f, nil
}

// usualHold returns the median hold of the past, without the window that it is compared with.
func usualHold(past []history.Point, now time.Time) time.Duration {
	var holds []time.Duration
	for _, p := range past {
		if p.HoldP50 > 0 && now.Sub(p.At) > 2*meter.Window {
			holds = append(holds, p.HoldP50)
		}
	}
	if len(holds) < 10 {
		return 0 // too little is known
	}
	slices.Sort(holds)
	return holds[len(holds)/2]
}

// advise returns the advice for a semaphore.
func (s *service) advise(ctx context.Context, name string) (adviceText, error) {
	if err := s.authorize(ctx, Read, name); err != nil {
		return adviceText{}, err
	}
	if err := s.reading(ctx, 1); err != nil {
		return adviceText{}, err
	}
	f, err := s.facts(ctx, name)
	if err != nil {
		return adviceText{}, err
	}
	return newAdviceText(name, f), nil
}

func newAdviceText(name string, f advice.Facts) adviceText {
	a := advice.Of(f)
	t := adviceText{
		Semaphore: name, Capacity: f.Capacity, Window: seconds(f.Period.Round(time.Second)), Arrivals: rounded(f.Arrivals), Rejected: rounded(f.Rejected), Note: a.Note, Unknown: a.Why,
		Needed: a.Needed, Findings: a.Findings, Expected: make([]expectedText, len(a.Expected)),
	}
	if f.Holds > 0 {
		t.Hold = short(f.Hold)
	}
	if a.Sized {
		t.Load = new(rounded(a.Load))
	}
	if t.Findings == nil {
		t.Findings = []advice.Finding{}
	}
	for i, e := range a.Expected {
		t.Expected[i].Capacity = e.Capacity
		if !e.Endless {
			t.Expected[i].Wait = short(e.Wait)
		}
	}
	return t
}

// advice responds with the advice for a semaphore.
func (a jsonAPI) advice(w http.ResponseWriter, r *http.Request) error {
	t, err := a.service.advise(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, t)
}
