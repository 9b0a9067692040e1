package server

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
)

// Limits protect the server, and its principals from each other. Counts are of one
// server. The defaults fit a container of 1 GiB.
type Limits struct {
	Body    int64         // bytes of a request; default 64 KiB
	Waiting int64         // acquires under way at a time, over HTTP or queued by Go clients; default 10,000
	Streams int64         // connections that hold a lease, watch or listen, and pages of the dashboard; default 4,000
	Held    int64         // leases, queued acquires and sessions of Go clients in the store; default 20,000
	Names   int64         // semaphores that clients have created; default 10,000
	Reads   int64         // snapshots and lists that are being read or sent at a time; default 64
	MaxWait time.Duration // of one request; default 1m
	// Idle is after how long an unused semaphore is deleted if nothing is held or
	// queued, no administrator has configured it, and its exact name is not declared.
	// 0: never. It is for stores that this server alone uses.
	Idle time.Duration
}

// A Quota bounds what one principal uses at a time. A zero field is half of what
// [Limits] has, so that no principal alone can exhaust the server; all of it where
// there is only one.
type Quota struct {
	Waiting int64 `yaml:"waiting"`
	Streams int64 `yaml:"streams"`
	Held    int64 `yaml:"held"`
	Names   int64 `yaml:"names"`
}

// Check fails on limits that make no sense.
func (l Limits) Check() error {
	for name, n := range map[string]int64{
		"body": l.Body, "waiting": l.Waiting, "streams": l.Streams, "held": l.Held, "names": l.Names, "reads": l.Reads,
		"max_wait": int64(l.MaxWait), "idle": int64(l.Idle),
	} {
		if n < 0 {
			return fmt.Errorf("limits.%s: %d: want a positive number, or 0 for the default", name, n)
		}
	}
	return nil
}

func (q Quota) check() error {
	return Limits{Waiting: q.Waiting, Streams: q.Streams, Held: q.Held, Names: q.Names}.Check()
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Body: cmp.Or(l.Body, 64<<10), Waiting: cmp.Or(l.Waiting, 10_000), Streams: cmp.Or(l.Streams, 4_000), Held: cmp.Or(l.Held, 20_000),
		Names: cmp.Or(l.Names, 10_000), Reads: cmp.Or(l.Reads, 64), MaxWait: cmp.Or(l.MaxWait, time.Minute), Idle: l.Idle,
	}
}

// A resource is something of which each principal may use so much.
type resource int

const (
	waiting resource = iota
	streams
	held
	names
	resources // how many there are
)

func (r resource) String() string { return [...]string{"waiting", "streams", "held", "names"}[r] }

// advice says what a client at the limit can do.
func (r resource) advice() string {
	return [...]string{
		"ask again when some of them have ended",
		"end some of them, or share one connection",
		"release leases, or close sessions that are not used",
		"use fewer names, or delete those that are not used",
	}[r]
}

type usage [resources]atomic.Int64

func (l Limits) of(r resource) int64 { return [...]int64{l.Waiting, l.Streams, l.Held, l.Names}[r] }

// An account is what one principal uses, and may use.
type account struct {
	principal string
	used      usage
	limits    [resources]atomic.Int64
	reads     *sema.Semaphore
	bodies    atomic.Int64 // see meteredBody
}

// accounts are those of all principals.
type accounts struct {
	service *service
	used    usage // by all together
	reads   *sema.Semaphore
	bodies  atomic.Int64

	mu  sync.RWMutex
	all map[string]*account // by principal
}

// readWait is how long a request to read waits for its turn.
const readWait = 5 * time.Second

func newAccounts(s *service) *accounts {
	return &accounts{service: s, all: map[string]*account{}, reads: sema.New(s.options.Limits.Reads, sema.MaxWait(readWait))}
}

// of returns the account of a principal.
func (a *accounts) of(principal string) *account {
	a.mu.RLock()
	found := a.all[principal]
	a.mu.RUnlock()
	if found != nil {
		return found
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if found = a.all[principal]; found != nil {
		return found
	}
	reads := a.service.options.Limits.Reads
	if principal != "" {
		reads = max(1, reads/2)
	}
	found = &account{principal: principal, reads: sema.New(reads, sema.MaxWait(readWait))}
	a.limit(found)
	a.all[principal] = found
	return found
}

// refresh sets limits anew after the tokens have changed.
func (a *accounts) refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		a.limit(one)
	}
}

// limit sets what an account may use.
func (a *accounts) limit(one *account) {
	known := a.service.tokens.Load()
	var own Quota
	for _, t := range known.all {
		if "token:"+t.Name == one.principal {
			own = t.Limits
		}
	}
	alone := one.principal == "" || len(known.all) == 1 && "token:"+known.all[0].Name == one.principal
	set := [...]int64{own.Waiting, own.Streams, own.Held, own.Names}
	for r := range resources {
		share := a.service.options.Limits.of(r)
		if !alone {
			share = max(1, share/2)
		}
		one.limits[r].Store(cmp.Or(set[r], share))
	}
}

// take counts one more of a resource, if neither the server's limit nor the
// principal's is reached. It is paired with give.
func (a *accounts) take(one *account, r resource) error {
	all, own := a.service.options.Limits.of(r), one.limits[r].Load()
	mine, everyones := one.used[r].Add(1), a.used[r].Add(1)
	switch {
	case everyones > all:
		a.give(one, r)
		return a.busy(one, r, all)
	case mine > own:
		a.give(one, r)
		return a.over(one, r, own)
	}
	return nil
}

// takeSwept is take. At a limit it first forgets leases and sessions that have expired.
func (a *accounts) takeSwept(one *account, r resource) error {
	if r == held && one.used[held].Load() >= one.limits[held].Load() {
		a.service.leases.sweep(time.Now(), time.Second)
	}
	err := a.take(one, r)
	if err == nil || !a.service.sessions.sweep(time.Now(), time.Second) {
		return err
	}
	return a.take(one, r)
}

// add counts one more of a resource, whatever the limits: it exists.
func (a *accounts) add(one *account, r resource) {
	one.used[r].Add(1)
	a.used[r].Add(1)
}

func (a *accounts) give(one *account, r resource) {
	one.used[r].Add(-1)
	a.used[r].Add(-1)
}

// A limitError is a problem that programs know as an error of package sema.
type limitError struct {
	*problem
	is error
}

func (e *limitError) Unwrap() []error { return []error{e.problem, e.is} }

// sentinel is what programs know a limit as. Clients do not retry ErrInvalid.
func (r resource) sentinel() error {
	if r == names || r == held {
		return sema.ErrInvalid
	}
	return sema.ErrQueueFull
}

// over is the error of a principal at its limit.
func (a *accounts) over(one *account, r resource, limit int64) error {
	a.service.counted.limited.WithLabelValues(r.String()).Inc()
	a.service.journal.warn("limit "+r.String(), "limit reached", "limit", "limits."+r.String(), "principal", one.principal, "at", limit)
	whose := "this server's clients"
	if one.principal != "" {
		whose = one.principal
	}
	return &limitError{newProblem(kindLimit, "limits.%s of %s is %d; %s, or have the operator raise it", r, whose, limit, r.advice()), r.sentinel()}
}

// busy is the error of a server at its limit.
func (a *accounts) busy(one *account, r resource, limit int64) error {
	a.service.counted.limited.WithLabelValues(r.String()).Inc()
	a.service.journal.warn("busy "+r.String(), "server limit reached", "limit", "limits."+r.String(), "principal", one.principal, "at", limit)
	return &limitError{newProblem(kindBusy, "limits.%s of this server is %d, for all clients together; %s, or ask another server", r, limit, r.advice()), r.sentinel()}
}

// read waits for a turn to read a snapshot or a list, and to send it: clients that
// read slowly hold what they are sent in memory. Large replies weigh more.
func (a *accounts) read(ctx context.Context, weight int64) (done func(), err error) {
	one := a.service.accountOf(ctx)
	mine, err := one.reads.Acquire(ctx, min(weight, one.reads.Stats().Capacity))
	if err != nil {
		return nil, a.unread(ctx, one, err)
	}
	all, err := a.reads.Acquire(ctx, min(weight, a.reads.Stats().Capacity))
	if err != nil {
		mine.Release()
		return nil, a.unread(ctx, one, err)
	}
	return func() { all.Release(); mine.Release() }, nil
}

func (a *accounts) unread(ctx context.Context, one *account, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.service.counted.limited.WithLabelValues("reads").Inc()
	a.service.journal.warn("limit reads", "limit reached", "limit", "limits.reads", "principal", one.principal, "error", err)
	return &limitError{newProblem(kindLimit, "limits.reads of this server is %d, half of it for one client, and for %v none has ended; read what was answered, and ask again",
		a.service.options.Limits.Reads, readWait), sema.ErrQueueFull}
}
