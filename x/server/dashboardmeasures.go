package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/advice"
	"github.com/sema-go/sema/internal/waitfor"
	"github.com/sema-go/sema/x/server/internal/dashboard"
	"github.com/sema-go/sema/x/server/internal/history"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// View implements [dashboard.Measures].
func (a dashboardAPI) View(name string, at time.Time, s protocol.Snapshot) {
	series := a.service.meter.Series(name)
	if series == nil {
		return
	}
	a.service.history.View(name, at, func() history.Sample {
		sample, since := a.service.sampler.sample(series), series.Pointed()
		sample.InUse, sample.Effective, sample.Waiting = s.InUse, s.Effective, int64(len(s.Queue))
		sample.Grants, sample.Failures = int64(since.Grants), int64(since.Failures)
		return sample
	})
}

// Past implements [dashboard.Measures].
func (a dashboardAPI) Past(name string, span time.Duration) (history.Curve, []history.Event) {
	now := time.Now()
	return a.service.history.Curve(name, now.Add(-span), now), a.service.history.Events(name, now.Add(-span))
}

// Waits implements [dashboard.Measures].
func (a dashboardAPI) Waits(name string) dashboard.Waits {
	series := a.service.meter.Series(name)
	if series == nil {
		return dashboard.Waits{}
	}
	now := time.Now()
	w := dashboard.Waits{Classes: meter.WaitClasses[:], Slot: meter.WaitSlot, At: now}
	for _, slot := range series.Waits(now) {
		counts := make([]int, len(slot))
		for class, n := range slot {
			counts[class] = int(n)
		}
		w.Counts = append(w.Counts, counts)
	}
	return w
}

// Live implements [dashboard.Measures]. Percentiles and rates are those of the last sample, because
// it is called for all semaphores.
func (a dashboardAPI) Live(name string, busy bool) (l dashboard.Live) {
	if samples := a.service.sampler.latest.Load(); samples != nil {
		var sample history.Sample
		if sample, l.Measured = (*samples)[name]; l.Measured {
			l.WaitP99, l.HoldP99 = sample.WaitP99, sample.HoldP99
			l.Grants, l.Failures = float64(sample.Grants)/sampleEvery.Seconds(), float64(sample.Failures)/sampleEvery.Seconds()
		}
	}
	now := time.Now()
	if p := a.service.store.paceOf(name); p != nil {
		l.Next, l.NextSpent = p.next(now)
	}
	if !busy {
		return l
	}
	open := a.service.meter.Open(name)
	if !open.HeadSince.IsZero() {
		l.HeadAge, l.First = now.Sub(open.HeadSince), open.First
	}
	if !open.OldestHoldSince.IsZero() {
		l.OldestHold = now.Sub(open.OldestHoldSince)
	}
	return l
}

// Declared implements [dashboard.Measures].
func (a dashboardAPI) Declared() (all []protocol.Summary) {
	for _, d := range a.service.declared {
		if d.isName() {
			all = append(all, protocol.Summary{Name: d.name, Config: d.config, Effective: d.config.Capacity})
		}
	}
	return all
}

// Activity implements [dashboard.Measures].
func (a dashboardAPI) Activity() []history.Event { return a.service.history.AllEvents() }

// Figures implements [dashboard.Measures].
func (a dashboardAPI) Figures(name string, s protocol.Snapshot) []dashboard.Figure {
	t := a.service.timesOf(name, time.Now())
	if t == nil {
		return nil
	}
	t.read(s, a.service.sampler.storeTime(time.Now()))
	period := fmt.Sprintf("in the last %v", time.Duration(t.Window))
	shown := func(d *seconds) string {
		if d == nil {
			return "–"
		}
		return dashboard.Brief(time.Duration(*d))
	}
	all := []dashboard.Figure{
		{Label: "Granted", Value: fmt.Sprintf("%.3g/s", t.Grants), Title: period},
		{Label: "Wait p50 · p99", Value: shown(t.WaitP50) + " · " + shown(t.WaitP99), Title: period},
		{Label: "Hold p50 · p99", Value: shown(t.HoldP50) + " · " + shown(t.HoldP99), Title: period},
		{Label: "Head of queue", Value: shown(t.HeadAge), Title: "how long the first acquire of the queue has waited"},
		{Label: "Oldest hold", Value: shown(t.OldestHold), Title: "how long the oldest lease has been held"},
	}
	if t.FirstNeeds > 0 {
		all = append(all, dashboard.Figure{Label: "First needs", Value: fmt.Sprintf("%d, %d free", t.FirstNeeds, max(0, s.Effective-s.InUse)), Title: "permits that the first acquire of the queue needs"})
	}
	return all
}

// Advice implements [dashboard.Measures].
func (a dashboardAPI) Advice(ctx context.Context, name string) (lines []string) {
	f, err := a.service.facts(ctx, name)
	if err != nil {
		return nil
	}
	of := advice.Of(f)
	for _, finding := range of.Findings {
		lines = append(lines, capitalised(finding.Text)+".")
	}
	if !of.Sized {
		return lines
	}
	text := fmt.Sprintf("On average %.3g permits are in use (Little's law). %d would be used to %.0f %%.", of.Load, of.Needed, 100*advice.Utilisation)
	for i, e := range of.Expected {
		if i == 0 {
			text += " Expected mean wait:"
		}
		wait := "endless"
		if !e.Endless {
			wait = dashboard.Brief(e.Wait)
		}
		text += fmt.Sprintf(" %s with %d,", wait, e.Capacity)
	}
	lines = append(lines, strings.TrimSuffix(text, ",")+".")
	if of.Note != "" {
		lines = append(lines, capitalised(of.Note)+".")
	}
	return lines
}

func capitalised(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Deadlocks implements [dashboard.Measures].
func (a dashboardAPI) Deadlocks(ctx context.Context, prefix string) (lines []string) {
	result, err := a.service.deadlocks.find(ctx, a.service, prefix)
	if err != nil || len(result.found) == 0 {
		return nil
	}
	for _, cycle := range result.found {
		lines = append(lines, capitalised(cycle.String())+".")
	}
	if result.skipped > 0 {
		lines = append(lines, fmt.Sprintf("%d more semaphores with waiters were not searched.", result.skipped))
	}
	return append(lines, capitalised(strings.TrimPrefix(waitfor.Caveat, "possible deadlock: "))+".")
}
