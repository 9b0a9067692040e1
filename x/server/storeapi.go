package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// A storeAPI provides the store to Go clients through the service. Each client may do what
// its token allows, and creates semaphores as declared.
type storeAPI struct{ service *service }

var (
	_ fleet.Store    = storeAPI{}
	_ fleet.Examiner = storeAPI{}
)

// Open implements [fleet.Store].
func (a storeAPI) Open(ctx context.Context, name string, c protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	s := a.service
	if err := s.authorize(ctx, Acquire, name); err != nil {
		return 0, protocol.Config{}, err
	}
	if s.leaving.Load() {
		return 0, protocol.Config{}, errLeaving
	}
	if ttl := span(c.TTL); ttl > maxTTL {
		return 0, protocol.Config{}, invalid("ttl %v: want %v at most; an operator may declare semaphores with more", ttl, maxTTL)
	}
	if by.Client.Kind == leasing.Service { // servers continue each other's sessions, so clients must not open such ones
		return 0, protocol.Config{}, invalid("client of kind %q: reserved for servers", by.Client.Kind)
	}
	if config, ok := s.declared.of(name); ok {
		config.Protocol = c.Protocol
		c, by.MustExist = config, false
	}
	one := s.accountOf(ctx)
	if err := s.accounts.takeSwept(one, held); err != nil {
		return 0, protocol.Config{}, err
	}
	by.Owner.Principal = callerOf(ctx).principal
	session, stored, err := s.store.Open(ctx, name, c, by)
	if err != nil {
		s.accounts.put(one, held)
		return 0, stored, err
	}
	s.sessions.opened(one, name, session, by.Owner, stored)
	return session, stored, nil
}

// Apply implements [fleet.Store].
func (a storeAPI) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if err := a.service.authorize(ctx, Acquire, name); err != nil {
		return protocol.Reply{}, err
	}
	if len(b.Ops) > maxOps {
		return protocol.Reply{}, invalid("%d operations in a batch: want %d at most", len(b.Ops), maxOps)
	}
	claims := false               // only servers set By and Key
	var checked *protocol.Details // most operations of a batch have the same
	for i := range b.Ops {
		d := b.Ops[i].Details
		if d == nil || d == checked {
			continue
		}
		for _, text := range []string{d.Site, d.Labels, d.Holder} {
			if err := fleet.CheckMeta(text); err != nil {
				return protocol.Reply{}, invalid("details: %v", err)
			}
		}
		checked = d
		claims = claims || d.By != "" || d.Key != ""
	}
	if claims {
		b.Ops = slices.Clone(b.Ops) // the batch and its details are the caller's
		for i, op := range b.Ops {
			if op.Details != nil {
				d := *op.Details
				d.By, d.Key = "", ""
				b.Ops[i].Details = &d
			}
		}
	}
	b.Owner.Principal = callerOf(ctx).principal
	return a.service.sessions.apply(ctx, name, b)
}

// Listen implements [fleet.Store]. It checks each notification, because clients choose their
// instance themselves.
func (a storeAPI) Listen(ctx context.Context, instance string, notify func(name string)) error {
	s, c := a.service, callerOf(ctx)
	if err := c.allow(Acquire, ""); err != nil {
		return err
	}
	one := s.accountOf(ctx)
	if err := s.enter(one, streams, &s.streams); err != nil {
		return err
	}
	defer s.leave(one, streams, &s.streams)
	ctx, cancel := withLife(ctx, s.life)
	defer cancel()
	return s.store.Listen(ctx, instance, func(name string) {
		if c.may(Acquire, name) {
			notify(name)
		}
	})
}

// snapshotWeight is the weight of a read of a whole snapshot; a page weighs 1.
const snapshotWeight = 8

// Inspect implements [fleet.Store]. A declared semaphore exists for Go clients before its first
// use, since opening a session creates it.
func (a storeAPI) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	if err := a.service.authorize(ctx, Read, name); err != nil {
		return protocol.Snapshot{}, err
	}
	if err := a.service.reading(ctx, snapshotWeight); err != nil {
		return protocol.Snapshot{}, err
	}
	return a.service.read(ctx, name)
}

// Administer implements [fleet.Store]. The configuration of a declared semaphore can be changed
// before its first use, too.
func (a storeAPI) Administer(ctx context.Context, name string, c fleet.Command) error {
	return a.service.administer(ctx, name, c)
}

// List implements [fleet.Store]. It returns only semaphores that the caller may see, including
// declared ones before their first use.
func (a storeAPI) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	return a.service.summaries(ctx, q)
}

// Ping implements [fleet.Examiner].
func (a storeAPI) Ping(ctx context.Context) (time.Time, error) {
	if err := callerOf(ctx).allow(Read, ""); err != nil {
		return time.Time{}, err
	}
	return a.service.store.Ping(ctx)
}

// Examine implements [fleet.Examiner]. The findings concern all semaphores, so the caller must
// be allowed to read all. An examination is costly, so its findings are reused for
// [examinedFor].
func (a storeAPI) Examine(ctx context.Context) ([]fleet.Finding, error) {
	c := callerOf(ctx)
	if err := c.allow(Read, ""); err != nil {
		return nil, err
	}
	if c.prefix != "" {
		return nil, &problem{Status: http.StatusForbidden, Title: "not allowed", Detail: fmt.Sprintf("token %q reads only semaphores with the prefix %q; examining the store requires a token without a prefix", c.name, c.prefix)}
	}
	return a.service.examination.findings(ctx, a.service.store.Examine)
}

// Close implements [fleet.Store]. It does nothing: the server owns the store.
func (a storeAPI) Close() error { return nil }

// examinedFor is how long the findings of an examination are reused.
const examinedFor = 10 * time.Second

// An examination caches the last findings. One examination runs at a time.
type examination struct {
	turn  chan struct{} // full while the store is examined; guards the fields below
	at    time.Time
	found []fleet.Finding
}

// findings returns the last findings, or examines the store if they are too old.
func (e *examination) findings(ctx context.Context, examine func(context.Context) ([]fleet.Finding, error)) ([]fleet.Finding, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if time.Since(e.at) < examinedFor {
		return e.found, nil
	}
	found, err := examine(ctx)
	if err == nil {
		e.at, e.found = time.Now(), found
	}
	return found, err
}
