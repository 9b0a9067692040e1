package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/desk"
)

// guarded is the engine for programs that reach it through this server: each may do
// what its token allows, and makes semaphores as they are declared.
type guarded struct{ *Server }

func (g guarded) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	if err := g.check(ctx, Acquire, name); err != nil {
		return 0, protocol.Config{}, err
	}
	if g.leaving.Load() {
		return 0, protocol.Config{}, errLeaving
	}
	if ttl := time.Duration(c.TTL) * time.Microsecond; ttl > maxTTL {
		return 0, protocol.Config{}, invalid("ttl %v: want %v at most; an operator may declare semaphores with more", ttl, maxTTL)
	}
	if by.Client.Kind == desk.Service { // servers continue each other's sessions
		return 0, protocol.Config{}, invalid("client of kind %q: reserved for servers", by.Client.Kind)
	}
	if d, ok := g.declared.of(name); ok {
		version := c.Protocol
		c = d.Config()
		c.Protocol = version
	}
	one := g.accounts.caller(ctx)
	if err := g.programs.take(one, held); err != nil {
		return 0, protocol.Config{}, err
	}
	by.Owner.Principal = who(ctx).principal
	session, stored, err := g.store.Open(ctx, name, c, by)
	if err != nil {
		g.accounts.give(one, held)
		return 0, stored, err
	}
	g.programs.opened(one, name, session, by.Owner, stored)
	return session, stored, nil
}

func (g guarded) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := g.check(ctx, Acquire, name); err != nil {
		return protocol.Reply{}, err
	}
	ops := slices.Clone(b.Ops)
	for i := range ops {
		d := &ops[i].Details
		for _, text := range []string{d.Site, d.Labels, d.Holder} {
			if err := fleet.CheckMeta(text); err != nil {
				return protocol.Reply{}, invalid("details: %v", err)
			}
		}
		d.By, d.Key = "", "" // which servers set
	}
	b.Ops = ops
	b.Owner.Principal = who(ctx).principal
	return g.programs.apply(ctx, name, b)
}

func (g guarded) Listen(ctx context.Context, instance string, hint func(name string)) error {
	if err := who(ctx).allow(Acquire, ""); err != nil {
		return err
	}
	leave, err := g.stream(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := until(ctx, g.life)
	defer cancel()
	i := who(ctx)
	return g.store.Listen(ctx, instance, func(name string) {
		if i.may(Acquire, name) { // an instance is whatever somebody calls itself
			hint(name)
		}
	})
}

func (g guarded) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if err := g.check(ctx, Read, name); err != nil {
		return protocol.Snapshot{}, err
	}
	return g.store.Inspect(ctx, name)
}

func (g guarded) Administer(ctx context.Context, name string, c fleet.Command) error {
	if err := g.check(ctx, Admin, name); err != nil {
		return err
	}
	if c.Revoke != nil {
		revocation := *c.Revoke
		revocation.By = who(ctx).signature(revocation.By)
		c.Revoke = &revocation
		if err := c.Revoke.Check(); err != nil {
			return err
		}
	}
	err := g.store.Administer(ctx, name, c)
	switch {
	case c.Configure != nil:
		g.audit(ctx, "configure", name, told(*c.Configure), err)
	case c.Revoke != nil:
		g.audit(ctx, "revoke", name, fmt.Sprintf("lease %d, at once %t: %s", c.Revoke.Lease, c.Revoke.AtOnce, c.Revoke.Why), err)
	case c.Delete:
		g.audit(ctx, "delete", name, "", err)
	}
	return err
}

// signature is the name under which a caller acts. Where no authentication is
// configured, the name it claims is shown as a claim.
func (c caller) signature(claim string) string {
	if c.identity != everybody || claim == "" || claim == c.name {
		return c.name
	}
	return fmt.Sprintf("%s (%s)", c.name, claim)
}

// reconfigure changes a semaphore, or makes it, as admin.go has it.
func (g guarded) reconfigure(ctx context.Context, name string, when conditions, wanted configuration) error {
	if err := g.check(ctx, Admin, name); err != nil {
		return err
	}
	_, err := g.change(ctx, name, when, wanted)
	g.audit(ctx, "configure", name, wanted.String(), err)
	return err
}

// pause drains a semaphore, or ends that.
func (g guarded) pause(ctx context.Context, op, name string, draining bool) error {
	if err := g.check(ctx, Admin, name); err != nil {
		return err
	}
	_, err := g.change(ctx, name, conditions{}, configuration{Draining: &draining, existing: true})
	g.audit(ctx, op, name, "", err)
	return err
}

// told is a configuration for people.
func told(c protocol.Config) string {
	text := fmt.Sprintf("capacity %d, ramp %d, max_waiters %d, ttl %v", c.Capacity, c.Ramp, c.MaxWaiters, time.Duration(c.TTL)*time.Microsecond)
	if c.Draining {
		text += ", draining"
	}
	return text
}

// List implements [fleet.Store]. It returns what the token may see.
func (g guarded) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	i := who(ctx)
	if err := i.allow(Read, ""); err != nil {
		return nil, err
	}
	return i.page(q, func(q protocol.ListQuery) ([]protocol.Summary, error) { return g.store.List(ctx, q) })
}

// Ping is for [fleet.Examiner].
func (g guarded) Ping(ctx context.Context) (time.Time, error) {
	if err := who(ctx).allow(Read, ""); err != nil {
		return time.Time{}, err
	}
	return g.client.Ping(ctx)
}

// Examine is for [fleet.Examiner]. It is about all semaphores, and for those who may
// see them; and it is work for the engine, so that what was found is told for a while.
func (g guarded) Examine(ctx context.Context) ([]fleet.Finding, error) {
	i := who(ctx)
	if err := i.allow(Read, ""); err != nil {
		return nil, err
	}
	if i.prefix != "" {
		return nil, &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: fmt.Sprintf("%s may see what begins with %q; to examine the engine takes a token for all", i.name, i.prefix)}
	}
	return g.examination.findings(func() ([]fleet.Finding, error) { return g.client.Examine(ctx) })
}

// examinedFor is how long an examination is good for.
const examinedFor = 10 * time.Second

// An examination is what was found of late, by one at a time.
type examination struct {
	mu    sync.Mutex
	at    time.Time
	found []fleet.Finding
}

func (e *examination) findings(examine func() ([]fleet.Finding, error)) ([]fleet.Finding, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.at) < examinedFor {
		return e.found, nil
	}
	found, err := examine()
	if err == nil {
		e.at, e.found = time.Now(), found
	}
	return found, err
}

// Close does nothing: the engine is the server's.
func (g guarded) Close() error { return nil }

func (g guarded) check(ctx context.Context, verb Verb, name string) error {
	if err := fleet.CheckName(name); err != nil {
		return err
	}
	return who(ctx).allow(verb, name)
}

// page returns a page of the semaphores that an identity may see.
func (i *identity) page(q protocol.ListQuery, list func(protocol.ListQuery) ([]protocol.Summary, error)) ([]protocol.Summary, error) {
	switch {
	case strings.HasPrefix(q.Prefix, i.prefix):
		return list(q)
	case strings.HasPrefix(i.prefix, q.Prefix):
		q.Prefix = i.prefix
		return list(q)
	}
	return nil, nil
}

var (
	_ fleet.Store    = guarded{}
	_ fleet.Examiner = guarded{}
)
