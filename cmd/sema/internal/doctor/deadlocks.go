package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/internal/waitfor"
)

// deadlocks reports processes that wait for each other. Only semaphores with waiters can be part
// of a deadlock. If there are too many, it reads some at random: another run reads others.
func (p *probe) deadlocks(ctx context.Context) {
	var names []string
	for one, err := range p.client.Summaries(ctx, "", "") {
		if err != nil {
			return // the check of what is stored reports that it cannot be listed
		}
		if one.Waiters > 0 {
			names = append(names, one.Name)
		}
	}
	if len(names) > mostRead {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	var joined []waitfor.Semaphore
	skipped := max(0, len(names)-mostRead)
	for _, name := range names[:len(names)-skipped] {
		info, err := p.client.Info(ctx, name)
		switch {
		case err == nil:
			joined = append(joined, joinable(info))
		case !isAbsent(err):
			skipped++
		}
	}
	now, err := p.client.Ping(ctx)
	if err != nil || now.IsZero() {
		now = time.Now()
	}
	for _, f := range deadlockFindings(waitfor.Cycles(joined, now), len(joined), skipped) {
		p.report.add(f)
	}
}

// deadlockFindings returns the findings of a search, and what it has left out.
func deadlockFindings(found []waitfor.Cycle, searched, skipped int) (all []fleet.Finding) {
	for _, cycle := range found {
		all = append(all, fleet.Finding{
			Check: "deadlock", Level: fleet.LevelWarning, Seen: cycle.String(),
			Advice: waitfor.Caveat + "; acquire in the same order everywhere, or revoke one of the leases (sema show NAME, sema revoke)",
		})
	}
	switch seen := fmt.Sprintf("%d among %s with waiters", len(found), figure.Count(int64(searched), "semaphore")); {
	case skipped > 0:
		all = append(all, fleet.Finding{
			Check: "deadlock", Level: fleet.LevelWarning, Seen: fmt.Sprintf("%s; %d more were not read", seen, skipped), Advice: "run doctor again: it reads others",
		})
	case len(found) == 0:
		all = append(all, fleet.Finding{Check: "deadlock", Level: fleet.LevelOK, Seen: "none" + strings.TrimPrefix(seen, "0")})
	}
	return all
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
