package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

// list returns a page of the semaphores that the caller may see, ordered by name and
// without holders and waiters. next is the cursor of the next page, "" after the last one.
func (s *service) list(ctx context.Context, prefix string, p page) (found []summary, next string, err error) {
	all, err := s.summaries(ctx, protocol.ListQuery{Prefix: prefix, After: p.after, Limit: p.size()})
	found = make([]summary, len(all))
	for i, one := range all {
		found[i] = newSummary(one)
		found[i].Times = s.timesOf(one.Name, time.Now())
	}
	if len(found) == p.size() {
		next = found[len(found)-1].Name
	}
	return found, next, err
}

// summaries returns the semaphores that match a query and that the caller may see, including
// declared ones before their first use.
func (s *service) summaries(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	c := callerOf(ctx)
	if err := c.allow(Read, ""); err != nil {
		return nil, err
	}
	q, some := c.narrow(q)
	if !some {
		return nil, nil
	}
	if err := s.reading(ctx, 1); err != nil {
		return nil, err
	}
	found, err := s.store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.declared.addTo(found, q), nil
}

// narrow restricts a query to names that the caller may see. It reports whether there may be any.
func (c caller) narrow(q protocol.ListQuery) (_ protocol.ListQuery, some bool) {
	switch {
	case strings.HasPrefix(q.Prefix, c.prefix):
		return q, true
	case strings.HasPrefix(c.prefix, q.Prefix):
		q.Prefix = c.prefix
		return q, true
	}
	return q, false
}

// info returns a semaphore with a page of its holders, followed by its waiters.
func (s *service) info(ctx context.Context, name string, p page) (info, error) {
	if err := s.authorize(ctx, Read, name); err != nil {
		return info{}, err
	}
	if err := s.reading(ctx, 1); err != nil {
		return info{}, err
	}
	return s.page(ctx, name, p)
}

func (s *service) page(ctx context.Context, name string, p page) (info, error) {
	snapshot, err := s.read(ctx, name)
	if err != nil {
		return info{}, named("inspect", name, err)
	}
	now, err := newInfo(name, snapshot, p)
	if now.Times = s.timesOf(name, time.Now()); now.Times != nil {
		now.Times.read(snapshot, s.sampler.storeTime(time.Now()))
	}
	return now, err
}

// read returns the state of a semaphore, also of a declared one before its first use.
func (s *service) read(ctx context.Context, name string) (protocol.Snapshot, error) {
	snapshot, err := s.store.Inspect(ctx, name)
	if unused, ok := s.declared.unused(name); ok && errors.Is(err, fs.ErrNotExist) {
		return unused, nil
	}
	return snapshot, err
}

// configure creates a semaphore or changes it, if the preconditions hold.
func (s *service) configure(ctx context.Context, name string, when conditions, wanted settings) (now info, created bool, err error) {
	if err := s.authorize(ctx, Admin, name); err != nil {
		return info{}, false, err
	}
	done, err := s.change(ctx, name, when, wanted, true)
	s.audit(ctx, "configure", done.kind(), name, wanted.String(), err)
	if err != nil {
		return info{}, false, err
	}
	s.watches.changed(name)
	now, err = s.page(ctx, name, page{})
	return now, done.created, err
}

// drain rejects waiters and new acquires until resume. It waits up to the given time until
// nothing is held. The result contains what is still held.
func (s *service) drain(ctx context.Context, name string, when conditions, wait time.Duration) (info, error) {
	if err := s.setDraining(ctx, "drain", name, when, true); err != nil {
		return info{}, err
	}
	if wait > 0 {
		if err := s.waitIdle(ctx, name, wait); err != nil {
			return info{}, err
		}
	}
	return s.page(ctx, name, page{})
}

// waitIdle waits up to the given time until no permit of a semaphore is held.
func (s *service) waitIdle(ctx context.Context, name string, wait time.Duration) error {
	one := s.accountOf(ctx)
	if err := s.enter(one, waiting, &s.waiting); err != nil {
		return err
	}
	defer s.leave(one, waiting, &s.waiting)
	ctx, stop := withLife(ctx, s.life)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, min(wait, s.options.Limits.MaxWait))
	defer cancel()
	w := s.watches.join(name)
	defer s.watches.leave(name, w)
	for {
		select {
		case now := <-w.updates:
			if now.err == nil && now.snapshot.InUse == 0 || errors.Is(now.err, fs.ErrNotExist) {
				return nil
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errLeaving) {
				return errLeaving
			}
			return nil
		}
	}
}

// resume ends a drain.
func (s *service) resume(ctx context.Context, name string, when conditions) (info, error) {
	if err := s.setDraining(ctx, "resume", name, when, false); err != nil {
		return info{}, err
	}
	return s.page(ctx, name, page{})
}

func (s *service) setDraining(ctx context.Context, op, name string, when conditions, draining bool) error {
	if err := s.authorize(ctx, Admin, name); err != nil {
		return err
	}
	done, err := s.change(ctx, name, when, settings{Draining: &draining}, false)
	s.audit(ctx, op, done.kind(), name, "", err)
	if err == nil {
		s.watches.changed(name)
	}
	return err
}

// revoke revokes a lease of any client.
func (s *service) revoke(ctx context.Context, name string, r fleet.Revocation) error {
	r.By = callerOf(ctx).name
	err := s.administer(ctx, name, fleet.Command{Revoke: &r})
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := s.snapshot(ctx, name); err != nil {
		return err
	}
	return newProblem(kindNoLease, "lease %d of %q does not exist: it was released, or has expired", r.Lease, name)
}

// delete deletes a semaphore if the preconditions hold. The store deletes only the version
// for which they were checked (optimistic concurrency).
func (s *service) delete(ctx context.Context, name string, when conditions) error {
	if err := s.authorize(ctx, Admin, name); err != nil {
		return err
	}
	command := fleet.Command{Delete: true}
	if when != (conditions{}) {
		snapshot, err := s.snapshot(ctx, name)
		if err == nil {
			err = when.check(true, snapshot.Config.Version)
		}
		if err != nil {
			s.audit(ctx, "delete", "delete", name, "", err)
			return err
		}
		command.DeleteVersion = snapshot.Config.Version
	}
	return named("delete", name, s.administer(ctx, name, command))
}

// administer sends an administrator's command to the store, and audits it.
func (s *service) administer(ctx context.Context, name string, c fleet.Command) error {
	if err := s.authorize(ctx, Admin, name); err != nil {
		return err
	}
	var op, kind, detail string
	switch {
	case c.Configure != nil:
		config, err := s.createDeclared(ctx, name, *c.Configure)
		if err != nil {
			return err
		}
		c.Configure = &config
		op, kind, detail = s.changeOf(ctx, name, config)
	case c.Revoke != nil:
		revocation := *c.Revoke
		revocation.By = callerOf(ctx).signature(revocation.By)
		c.Revoke = &revocation
		if err := revocation.Check(); err != nil {
			return err
		}
		op, kind, detail = "revoke", "revoke", fmt.Sprintf("lease %d, at once %t: %s", revocation.Lease, revocation.AtOnce, revocation.Why)
	case c.Delete:
		op, kind = "delete", "delete"
	}
	err := s.store.Administer(ctx, name, c)
	s.audit(ctx, op, kind, name, detail, err)
	s.watches.changed(name)
	return err
}

// createDeclared creates a declared semaphore, if a client is about to change its configuration
// before its first use. It returns the changed configuration with the version that it replaces.
func (s *service) createDeclared(ctx context.Context, name string, to protocol.Config) (protocol.Config, error) {
	unused, ok := s.declared.unused(name)
	if !ok || to.Version != unused.Config.Version {
		return to, nil
	}
	switch created, err := s.create(ctx, name, settings{}); {
	case err != nil:
		return to, err
	case !created: // the client reads it again
		return to, protocol.ErrConflict
	}
	to.Version = 1
	return to, nil
}

// changeOf returns the operation that a client performs by storing a configuration, the kind of its
// event, and its detail. It compares the configuration with the stored one, as far as that can be
// read.
func (s *service) changeOf(ctx context.Context, name string, to protocol.Config) (op, kind, detail string) {
	before, err := s.snapshot(ctx, name)
	from := before.Config
	var changed []string
	add := func(what string, from, to any) {
		switch {
		case err != nil:
			changed = append(changed, fmt.Sprintf("%s %v", what, to))
		case from != to:
			changed = append(changed, fmt.Sprintf("%s %v → %v", what, from, to))
		}
	}
	add("capacity", from.Capacity, to.Capacity)
	add("ramp", from.Ramp, to.Ramp)
	add("max waiters", boundText(from.MaxWaiters), boundText(to.MaxWaiters))
	op, detail = "configure", strings.Join(changed, ", ")
	switch {
	case to.Draining && (err != nil || !from.Draining):
		op = "drain"
	case err == nil && from.Draining && !to.Draining:
		op = "resume"
	}
	if err != nil {
		return op, op, detail
	}
	to.Version = from.Version
	return op, change{was: from, is: to}.kind(), detail
}

// boundText describes a stored bound of the waiters.
func boundText(stored int64) string {
	switch shown := maxWaiters(stored).shown(); {
	case shown == nil:
		return "unbounded"
	default:
		return fmt.Sprint(*shown)
	}
}

// audit logs an administrative operation and its result, also if it failed. If it has succeeded,
// it adds an event of a kind to the history; "": none, because nothing has changed.
func (s *service) audit(ctx context.Context, op, kind, name, detail string, err error) {
	result := "done"
	if err != nil {
		result = err.Error()
	}
	c := callerOf(ctx)
	if err == nil && kind != "" {
		s.history.Note(history.Event{At: time.Now(), Semaphore: name, Kind: kind, By: c.name, Detail: detail})
	}
	s.log.Info("audit", "who", c.name, "principal", c.principal, "from", c.from, "op", op, "semaphore", name, "detail", detail, "result", result)
}

// signature returns the name that is recorded for a caller. If no authentication is
// configured, it appends the name that the caller claims in parentheses.
func (c caller) signature(claim string) string {
	if c.identity != anonymousIdentity || claim == "" || claim == c.name {
		return c.name
	}
	return fmt.Sprintf("%s (%s)", c.name, claim)
}

func span(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }
