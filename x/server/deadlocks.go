package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/internal/waitfor"
)

const (
	// deadlocksFor is how long the result of a search is reused.
	deadlocksFor = 5 * time.Second
	// mostJoined bounds the semaphores of one search. Only those with waiters can be in a cycle.
	mostJoined = 200
)

// deadlocks searches the semaphores of the store for clients that wait for each other.
type deadlocks struct {
	mu      sync.Mutex // held while the store is read
	at      time.Time
	cycles  []waitfor.Cycle
	skipped int
}

// find returns the cycles over semaphores whose names have a prefix, and how many semaphores with
// waiters were not searched.
func (d *deadlocks) find(ctx context.Context, s *service, prefix string) (found []waitfor.Cycle, skipped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.at) >= deadlocksFor {
		d.cycles, d.skipped = s.searchDeadlocks(ctx)
		if ctx.Err() == nil {
			d.at = time.Now()
		}
	}
	for _, c := range d.cycles {
		visible := true
		for _, step := range c.Steps {
			visible = visible && strings.HasPrefix(step.Holds, prefix)
		}
		if visible {
			found = append(found, c)
		}
	}
	return found, d.skipped
}

// searchDeadlocks inspects the semaphores with waiters, as of the last sample.
func (s *service) searchDeadlocks(ctx context.Context) (cycles []waitfor.Cycle, skipped int) {
	names := s.sampler.withWaiters(ctx)
	skipped = max(0, len(names)-mostJoined)
	var joined []waitfor.Semaphore
	for _, name := range names[:len(names)-skipped] {
		if snapshot, err := s.store.inspect(ctx, name); err == nil { // otherwise the next search sees more
			joined = append(joined, joinable(name, snapshot))
		}
	}
	return waitfor.Cycles(joined, time.Now()), skipped
}

// joinable converts a snapshot.
func joinable(name string, s protocol.Snapshot) waitfor.Semaphore {
	clients := make(map[protocol.Session]protocol.Client, len(s.Sessions))
	for _, one := range s.Sessions {
		clients[one.Session] = one.Client
	}
	participant := func(session protocol.Session, d protocol.Details, weight int64, since protocol.Micros) waitfor.Client {
		c := clients[session]
		p := waitfor.Client{Instance: c.Instance, Host: c.Host, Process: c.Process, Weight: weight, Since: instant(since)}
		if c.Kind == leasing.Service {
			p.Service = true
			if d.Holder != "" {
				p.Work = strings.TrimSpace(d.Holder + " " + d.By)
			}
		}
		return p
	}
	j := waitfor.Semaphore{Name: name, Free: max(0, s.Effective-s.InUse)}
	for _, l := range s.Leases {
		j.Holders = append(j.Holders, participant(l.Session, l.Details, l.Weight, l.Since))
	}
	for _, q := range s.Queue {
		j.Waiters = append(j.Waiters, participant(q.Session, q.Details, q.Weight, q.Since))
	}
	return j
}

// A deadlockText is a possible deadlock in JSON.
type deadlockText struct {
	Steps []deadlockStep `json:"steps"` // the client of each waits for what that of the next holds
	Text  string         `json:"text"`
}

// A deadlockStep is a step in JSON.
type deadlockStep struct {
	Client string  `json:"client"`
	Holds  string  `json:"holds"`
	Waits  string  `json:"waits"`
	Waited seconds `json:"waited"`
}

// deadlocks responds with the possible deadlocks among the semaphores that the caller may read.
func (a jsonAPI) deadlocks(w http.ResponseWriter, r *http.Request) error {
	s, c := a.service, callerOf(r.Context())
	if err := c.allow(Read, ""); err != nil {
		return err
	}
	if err := s.reading(r.Context(), snapshotWeight); err != nil {
		return err
	}
	found, skipped := s.deadlocks.find(r.Context(), s, c.prefix)
	reply := struct {
		Deadlocks []deadlockText `json:"deadlocks"`
		Caveat    string         `json:"caveat"`
		Skipped   int            `json:"skipped"` // semaphores with waiters that were not searched
	}{make([]deadlockText, len(found)), waitfor.Caveat, skipped}
	for i, cycle := range found {
		reply.Deadlocks[i].Text = cycle.String()
		for _, step := range cycle.Steps {
			reply.Deadlocks[i].Steps = append(reply.Deadlocks[i].Steps, deadlockStep{step.Client, step.Holds, step.Waits, seconds(step.Waited)})
		}
	}
	return respond(w, http.StatusOK, reply)
}
