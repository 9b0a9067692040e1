package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// Checks implements [dashboard.Measures].
func (a dashboardAPI) Checks(ctx context.Context, prefix string, responds bool) []dashboard.Check {
	s := a.service
	all := []dashboard.Check{{Name: "Server", Level: fleet.LevelOK, Text: "Version " + s.options.Version + "."}}
	if s.leaving.Load() {
		all[0].Level = fleet.LevelWarning
		all[0].Text += " It is being stopped, and rejects new acquires."
	}
	if prefix != "" {
		return all
	}
	if named, ok := s.store.Store.(fmt.Stringer); ok { // stores omit their secrets
		all = append(all, dashboard.Check{Name: "Store", Level: fleet.LevelOK, Text: capitalised(named.String()) + "."})
	}
	if responds {
		all = append(all, s.storeChecks(ctx)...)
	}
	kept := dashboard.Check{Name: "History", Level: fleet.LevelOK, Text: "The history is kept in memory, and is lost when the server stops."}
	if err := s.historyError(); err != nil {
		kept.Level, kept.Text = fleet.LevelWarning, "The history is not kept across restarts: "+err.Error()
	} else if s.options.History != "" {
		kept.Text = fmt.Sprintf("The history is kept across restarts, and takes %.1f MiB of memory.", float64(s.history.Bytes())/(1<<20))
	}
	series := dashboard.Check{Name: "Series", Level: fleet.LevelOK, Text: "Every semaphore has metrics and a history of its own."}
	if folded := s.sampler.folded.Load(); folded > 0 {
		series.Level = fleet.LevelWarning
		series.Text, series.Advice = s.foldedText(folded), "Declare the names that matter; raise limits.series, or bound limits.names of the token of that client."
	}
	load := fmt.Sprintf("Waiting requests: %d. Open streams: %d.", s.waiting.Load(), s.streams.Load())
	streams := dashboard.Check{Name: "Load", Level: fleet.LevelOK, Text: load}
	return append(all, kept, series, streams)
}

// storeChecks returns what an examination of the store finds, as in "sema doctor", and possible
// deadlocks.
func (s *service) storeChecks(ctx context.Context) (all []dashboard.Check) {
	found, err := s.examination.findings(ctx, s.store.Examine)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		found = []fleet.Finding{{Check: "settings", Level: fleet.LevelWarning, Seen: "they cannot be read: " + err.Error(), Advice: "allow the server's user to read them"}}
	}
	for _, f := range found {
		c := dashboard.Check{Name: capitalised(f.Check), Level: f.Level, Text: capitalised(f.Seen) + "."}
		if f.Advice != "" {
			c.Advice = capitalised(f.Advice) + "."
		}
		all = append(all, c)
	}
	deadlocks := dashboard.Check{Name: "Deadlocks", Level: fleet.LevelOK, Text: "No clients wait for each other in a circle."}
	switch result, err := s.deadlocks.find(ctx, s, ""); {
	case err != nil:
		deadlocks.Level, deadlocks.Text = fleet.LevelWarning, "The semaphores were not searched: "+err.Error()+"."
	case len(result.found) > 0:
		deadlocks.Level, deadlocks.Text = fleet.LevelProblem, fmt.Sprintf("%d possible: the overview lists them.", len(result.found))
	case result.skipped > 0:
		deadlocks.Level = fleet.LevelWarning
		deadlocks.Text = fmt.Sprintf("None among %d semaphores with waiters; %d more were not searched.", result.searched, result.skipped)
	}
	return append(all, deadlocks)
}

// foldedText reports how many semaphores have no series of their own, and which client has the
// most of the series.
func (s *service) foldedText(folded int64) string {
	text := fmt.Sprintf("%d semaphores have no metrics and no history of their own, because limits.series is %d.", folded, s.options.Limits.Series)
	if owner, n := s.meter.Most(); n > 0 && owner != "" {
		text += fmt.Sprintf(" %s has %d of these series.", owner, n)
	}
	return text
}
