package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
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
	// searchTime bounds one search. A store that does not reply leaves semaphores unsearched.
	searchTime = 5 * time.Second
)

// deadlocks searches the semaphores of the store for clients that wait for each other.
type deadlocks struct {
	turn    chan struct{} // full while the store is read; guards the fields below
	at      time.Time
	cycles  []waitfor.Cycle
	read    []string // semaphores that were searched
	skipped []string // semaphores with waiters that were not
}

// A search is the result of a search over semaphores whose names have a prefix.
type search struct {
	found             []waitfor.Cycle
	searched, skipped int // number of semaphores with waiters
}

// find returns the result of the last search, or searches again if that is too old.
func (d *deadlocks) find(ctx context.Context, s *service, prefix string) (result search, err error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return search{}, context.Cause(ctx)
	}
	if time.Since(d.at) >= deadlocksFor {
		cycles, read, skipped := s.searchDeadlocks(ctx)
		if ctx.Err() != nil {
			return search{}, context.Cause(ctx)
		}
		d.cycles, d.read, d.skipped, d.at = cycles, read, skipped, time.Now()
	}
	for _, c := range d.cycles {
		if !slices.ContainsFunc(c.Steps, func(step waitfor.Step) bool { return !strings.HasPrefix(step.Holds, prefix) }) {
			result.found = append(result.found, c)
		}
	}
	for n, names := range map[*int][]string{&result.searched: d.read, &result.skipped: d.skipped} {
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				*n++
			}
		}
	}
	return result, nil
}

// searchDeadlocks inspects the semaphores with waiters, as of the last list. It compares the times
// of waits with the clock of the store, which has set them.
func (s *service) searchDeadlocks(ctx context.Context) (cycles []waitfor.Cycle, read, skipped []string) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	names := s.searchOrder(s.sampler.withWaiters(ctx))
	s.sampler.readClock(ctx)
	var joined []waitfor.Semaphore
	for i, name := range names {
		if i == mostJoined || ctx.Err() != nil {
			skipped = append(skipped, names[i:]...)
			break
		}
		if snapshot, err := s.store.inspect(ctx, name); err == nil {
			joined, read = append(joined, joinable(name, snapshot)), append(read, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			skipped = append(skipped, name)
		}
	}
	return waitfor.Cycles(joined, s.sampler.storeTime(time.Now())), read, skipped
}

// searchOrder returns the semaphores in the order in which they are searched. In a deadlock nothing
// is granted, so those that have granted nothing for longest come first. Those of one owner
// alternate with those of the others: no client can exclude the semaphores of others.
func (s *service) searchOrder(queues []queue) (names []string) {
	slices.SortFunc(queues, func(a, b queue) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name)) })
	turns, of := map[string]int{}, make(map[string]int, len(queues))
	for _, q := range queues {
		owner := s.ownerName(q.name)
		of[q.name] = turns[owner]
		turns[owner]++
		names = append(names, q.name)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(of[a], of[b]) })
	return names
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
	result, err := s.deadlocks.find(r.Context(), s, c.prefix)
	if err != nil {
		return err
	}
	reply := struct {
		Deadlocks []deadlockText `json:"deadlocks"`
		Caveat    string         `json:"caveat"`
		Searched  int            `json:"searched"` // semaphores with waiters
		Skipped   int            `json:"skipped"`  // semaphores with waiters that were not searched
	}{make([]deadlockText, len(result.found)), waitfor.Caveat, result.searched, result.skipped}
	for i, cycle := range result.found {
		reply.Deadlocks[i].Text = cycle.String()
		for _, step := range cycle.Steps {
			reply.Deadlocks[i].Steps = append(reply.Deadlocks[i].Steps, deadlockStep{step.Client, step.Holds, step.Waits, seconds(step.Waited)})
		}
	}
	return respond(w, http.StatusOK, reply)
}
