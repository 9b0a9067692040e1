package dashboard

import (
	"context"
	"html/template"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

// Measures provides what the server has measured of semaphores.
type Measures interface {
	// View notes that a semaphore is being viewed, and its state: it is sampled every second.
	View(name string, at time.Time, s protocol.Snapshot)
	// Past returns the history of a semaphore.
	Past(name string, span time.Duration) (history.Curve, []history.Event)
	// Waits returns the waits of a semaphore by time and length, the zero value if it is not measured.
	Waits(name string) Waits
	// Figures returns waits, holds, rates and ages; nil: the semaphore is not measured.
	Figures(name string, s protocol.Snapshot) []Figure
	// Live returns what is measured of a semaphore now. busy is false if nothing is in use and
	// nothing waits, so that there are no ages.
	Live(name string, busy bool) Live
	// Declared returns the semaphores that the operator has declared by name.
	Declared() []protocol.Summary
	// Activity returns what operators have changed, the latest first.
	Activity() []history.Event
	// Checks returns facts about the server. Viewers with a prefix get none about other names.
	// What needs a store that responds is checked only if it does.
	Checks(ctx context.Context, prefix string, responds bool) []Check
	// Advice returns sentences on the capacity of a semaphore.
	Advice(ctx context.Context, name string) []string
	// Deadlocks describes possible deadlocks among semaphores whose names have a prefix.
	Deadlocks(ctx context.Context, prefix string) []string
}

// A Figure is a measured value with its name.
type Figure struct{ Label, Value, Title string }

// A Live is what is measured of a semaphore now.
type Live struct {
	Measured            bool          // false: it has no series of its own, and only the ages are known
	HeadAge, OldestHold time.Duration // of clients of this server; 0: none
	First               int64         // permits that the first of its queued acquires needs; 0: unknown
	WaitP99, HoldP99    time.Duration // of the last minutes; 0: none
	Grants, Failures    float64       // a second, of the last seconds
	Next                time.Duration // until a rate has its next permit, at most; 0: unknown
	NextSpent           int64         // permits behind Next; if more are spent, Next may be sooner
}

// noMeasures is for programs without measurements.
type noMeasures struct{}

func (noMeasures) View(string, time.Time, protocol.Snapshot) {}
func (noMeasures) Past(string, time.Duration) (c history.Curve, e []history.Event) {
	return c, e
}
func (noMeasures) Waits(string) Waits                           { return Waits{} }
func (noMeasures) Figures(string, protocol.Snapshot) []Figure   { return nil }
func (noMeasures) Live(string, bool) Live                       { return Live{} }
func (noMeasures) Declared() []protocol.Summary                 { return nil }
func (noMeasures) Activity() []history.Event                    { return nil }
func (noMeasures) Checks(context.Context, string, bool) []Check { return nil }
func (noMeasures) Advice(context.Context, string) []string      { return nil }
func (noMeasures) Deadlocks(context.Context, string) []string   { return nil }

// ranges are the time ranges of the charts, by their names in URLs. The first is the default.
var ranges = []struct {
	Name string
	Span time.Duration
}{{"15m", 15 * time.Minute}, {"1h", time.Hour}, {"24h", 24 * time.Hour}}

// spanOf returns the time range with a name, or the default.
func spanOf(name string) time.Duration {
	for _, r := range ranges {
		if r.Name == name {
			return r.Span
		}
	}
	return ranges[0].Span
}

// measured renders the parts that show measurements.
func (s *snapshot) measured(r *reader, span time.Duration, p page) {
	curve, events := r.measures.Past(s.Name, span)
	p.parts["charts"] = render("charts", newCharts(s.URL(), curve, events, s.at, span))
	p.parts["heat"] = render("heat", newHeatMap(r.measures.Waits(s.Name), span))
	p.parts["times"] = render("times", s.times)
	ctx, cancel := context.WithTimeout(r.life, timeout)
	defer cancel()
	p.parts["advice"] = render("advice", r.measures.Advice(ctx, s.Name))
}

// deadlocks renders the possible deadlocks that a viewer may see.
func (r *reader) deadlocks(ctx context.Context, prefix string) template.HTML {
	return render("deadlocks", r.measures.Deadlocks(ctx, prefix))
}
