package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/internal/waitfor"
)

// deadlocks reports processes that wait for each other. Only semaphores with waiters can be part
// of a deadlock.
func (p *probe) deadlocks(ctx context.Context) {
	var joined []waitfor.Semaphore
	skipped := 0
	for one, err := range p.client.Summaries(ctx, "", "") {
		switch {
		case err != nil:
			return // the check of what is stored reports that it cannot be listed
		case one.Waiters == 0:
		case len(joined) == mostRead:
			skipped++
		default:
			if info, err := p.client.Info(ctx, one.Name); err == nil {
				joined = append(joined, joinable(info))
			}
		}
	}
	now, err := p.client.Ping(ctx)
	if err != nil || now.IsZero() {
		now = time.Now()
	}
	found := waitfor.Cycles(joined, now)
	for _, cycle := range found {
		p.report.add(fleet.Finding{
			Check: "deadlock", Level: fleet.LevelWarning, Seen: cycle.String(),
			Advice: waitfor.Caveat + "; acquire in the same order everywhere, or revoke one of the leases (sema show NAME, sema revoke)",
		})
	}
	if len(found) == 0 {
		seen := "none among " + figure.Count(int64(len(joined)), "semaphore") + " with waiters"
		if skipped > 0 {
			seen += fmt.Sprintf("; %d more were not read", skipped)
		}
		p.report.add(fleet.Finding{Check: "deadlock", Level: fleet.LevelOK, Seen: seen})
	}
}

// joinable converts a semaphore.
func joinable(info fleet.Info) waitfor.Semaphore {
	participant := func(c fleet.Caller, weight int64, since time.Time) waitfor.Client {
		p := waitfor.Client{Instance: c.Client, Host: c.Host, Process: c.Process, Weight: weight, Since: since, Service: c.Kind == leasing.Service}
		if p.Service && c.Work != "" {
			p.Work = c.Work + " " + c.Principal
		}
		return p
	}
	s := waitfor.Semaphore{Name: info.Name, Free: max(0, info.Effective-info.InUse)}
	for _, h := range info.Holders {
		s.Holders = append(s.Holders, participant(h.Caller, h.Weight, h.Since))
	}
	for _, w := range info.Waiters {
		s.Waiters = append(s.Waiters, participant(w.Caller, w.Weight, w.Since))
	}
	return s
}
