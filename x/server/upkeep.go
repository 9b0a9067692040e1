package server

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// upkeepEvery is the interval at which expired entries are removed.
const upkeepEvery = 10 * time.Minute

// upkeep removes expired entries periodically, until the server is closed.
func (s *service) upkeep() {
	every := upkeepEvery
	if idle := s.options.Limits.Idle; idle > 0 {
		every = min(every, max(idle/4, time.Millisecond))
	}
	for {
		s.tidy(s.life)
		select {
		case <-s.life.Done():
			return
		case <-time.After(every):
		}
	}
}

func (s *service) tidy(ctx context.Context) {
	now := time.Now()
	s.sessions.sweep(now, 0)
	s.leases.sweep(now, 0)
	if err := s.store.compare(ctx, now); err != nil {
		return // logged; names are counted when they are used
	}
	if s.options.Limits.Idle > 0 {
		s.store.deleteIdle(ctx, now.Add(-s.options.Limits.Idle))
	}
}

// compare adds names that are in the store, and removes names that are not: other servers,
// and some stores, delete semaphores, too.
func (c *catalog) compare(ctx context.Context, now time.Time) error {
	there := map[string]bool{}
	for s, err := range fleet.Summaries(ctx, c, protocol.ListQuery{}) {
		if err != nil {
			return err
		}
		there[s.Name] = true
		if s.Name != readyName {
			c.add(s.Name, nil)
		}
	}
	c.mu.Lock()
	var absent []string
	for name, e := range c.names {
		if !there[name] && e.used.Load() < now.UnixNano() {
			absent = append(absent, name)
		}
	}
	c.mu.Unlock()
	for _, name := range absent {
		c.remove(name)
	}
	return nil
}

// deleteIdle deletes semaphores that were not used since a time.
func (c *catalog) deleteIdle(ctx context.Context, since time.Time) {
	c.mu.Lock()
	idle := map[string]*entry{}
	for name, e := range c.names {
		if e.used.Load() < since.UnixNano() {
			idle[name] = e
		}
	}
	c.mu.Unlock()
	deleted := 0
	for name, e := range idle {
		if ctx.Err() != nil {
			break
		}
		if c.deleteUnused(ctx, name, e, since) {
			deleted++
		}
	}
	if deleted > 0 {
		c.service.log.Info("idle semaphores deleted", "count", deleted, "idle", c.service.options.Limits.Idle)
	}
}

// deleteUnused deletes a semaphore if it is still unused, nothing is held or queued, and its
// configuration was not changed since its creation. It reports whether it did. It holds the
// entry's lock, so that nothing is granted in between.
func (c *catalog) deleteUnused(ctx context.Context, name string, e *entry, since time.Time) bool {
	if c.service.declared.exactly(name) || !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if e.gone || e.used.Load() >= since.UnixNano() {
		return false
	}
	s, err := c.inspect(ctx, name)
	if err != nil || len(s.Leases) > 0 || len(s.Queue) > 0 || s.InUse > 0 || s.Config.Version > 1 {
		return false
	}
	err = withinTimeout(ctx, func(ctx context.Context) error { return c.Store.Administer(ctx, name, fleet.Command{Delete: true}) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c.failed("delete", name, err) == nil
	}
	e.gone = true
	c.remove(name)
	return true
}
