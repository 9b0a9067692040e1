package server

import (
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// times is what this server has measured of a semaphore. A nil field is unknown: nothing of the
// kind has happened in the window.
type times struct {
	Window     seconds  `json:"window"`                // period of rates and percentiles
	Arrivals   float64  `json:"arrivals_per_second"`   // acquires that began, also those that were not granted
	Grants     float64  `json:"grants_per_second"`     // acquires that were granted
	HeadAge    *seconds `json:"head_age,omitempty"`    // how long the first acquire of the queue has waited
	FirstNeeds int64    `json:"first_needs,omitempty"` // permits that it needs
	OldestHold *seconds `json:"oldest_hold,omitempty"`
	WaitP50    *seconds `json:"wait_p50,omitempty"`
	WaitP99    *seconds `json:"wait_p99,omitempty"`
	HoldP50    *seconds `json:"hold_p50,omitempty"`
	HoldP99    *seconds `json:"hold_p99,omitempty"`
}

// timesOf returns the times of a semaphore; nil: it is not measured, see [Limits].Series.
func (s *service) timesOf(name string, now time.Time) *times {
	series := s.meter.Series(name)
	if series == nil {
		return nil
	}
	f := series.Figures(now)
	t := &times{Window: seconds(f.Period.Round(time.Second)), Arrivals: rounded(f.Arrivals), Grants: rounded(f.Grants)}
	if f.Waits > 0 {
		t.WaitP50, t.WaitP99 = short(f.WaitP50), short(f.WaitP99)
	}
	if f.Holds > 0 {
		t.HoldP50, t.HoldP99 = short(f.HoldP50), short(f.HoldP99)
	}
	open := s.meter.Open(name)
	t.setOpen(open, now)
	return t
}

func (t *times) setOpen(open meter.Open, now time.Time) {
	t.HeadAge, t.FirstNeeds, t.OldestHold = nil, 0, nil
	if !open.HeadSince.IsZero() {
		t.HeadAge, t.FirstNeeds = short(max(0, now.Sub(open.HeadSince))), open.First
	}
	if !open.OldestHoldSince.IsZero() {
		t.OldestHold = short(max(0, now.Sub(open.OldestHoldSince)))
	}
}

// read sets the ages from a snapshot, which also has the clients of other servers. now is the time
// of the store.
func (t *times) read(s protocol.Snapshot, now time.Time) {
	var open meter.Open
	if len(s.Queue) > 0 {
		open.HeadSince, open.First = instant(s.Queue[0].Since), s.Queue[0].Weight
	}
	for _, l := range s.Leases {
		if since := instant(l.Since); open.OldestHoldSince.IsZero() || since.Before(open.OldestHoldSince) {
			open.OldestHoldSince = since
		}
	}
	t.setOpen(open, now)
}

// short rounds a duration to a tenth of a millisecond.
func short(d time.Duration) *seconds { return new(seconds(d.Round(100 * time.Microsecond))) }

// rounded rounds a rate to three decimals.
func rounded(perSecond float64) float64 { return float64(int64(perSecond*1000+0.5)) / 1000 }
