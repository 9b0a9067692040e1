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

// Limits protects the server, and its principals from each other. Counts apply to one
// server. The defaults fit a container with 1 GiB of memory.
type Limits struct {
	Body    int64         // bytes of a request body; default 64 KiB
	Waiting int64         // concurrent acquires, over HTTP or queued by Go clients; default 10,000
	Streams int64         // connections that hold a lease, watch or listen, and open dashboard pages; default 4,000
	Held    int64         // leases, queued acquires and sessions of Go clients in the store; default 20,000
	Names   int64         // semaphores that clients have created; default 10,000
	Series  int64         // semaphores with metrics and a history of their own, besides the declared ones; default 1,000
	Reads   int64         // snapshots and lists being read or sent concurrently; default 64
	MaxWait time.Duration // longest wait of one request; default 1m
	// Idle is the time after which an unused semaphore is deleted. Nothing of it may be held
	// or queued, no administrator may have configured it, and its exact name may not be
	// declared. 0: never. It is for stores that only this server uses.
	Idle time.Duration
}

// A Quota bounds what one principal uses at a time. A zero field is half of the value in
// [Limits], so that no single principal can exhaust the server. If there is only one
// principal, it is the whole value.
type Quota struct {
	Waiting int64 `yaml:"waiting"`
	Streams int64 `yaml:"streams"`
	Held    int64 `yaml:"held"`
	Names   int64 `yaml:"names"`
}

// Check fails if a limit is negative.
func (l Limits) Check() error {
	for name, n := range map[string]int64{
		"body": l.Body, "waiting": l.Waiting, "streams": l.Streams, "held": l.Held, "names": l.Names, "reads": l.Reads, "series": l.Series,
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
		Names: cmp.Or(l.Names, 10_000), Series: cmp.Or(l.Series, 1_000), Reads: cmp.Or(l.Reads, 64), MaxWait: cmp.Or(l.MaxWait, time.Minute), Idle: l.Idle,
	}
}

// A resource is something that is limited per principal.
type resource int

const (
	waiting resource = iota
	streams
	held
	names
	resources // number of resources
)

func (r resource) String() string { return [...]string{"waiting", "streams", "held", "names"}[r] }

// advice returns what a client at the limit can do.
func (r resource) advice() string {
	return [...]string{
		"retry when some of them have ended",
		"end some of them, or share one connection",
		"release leases, or close unused sessions",
		"use fewer names, or delete unused ones",
	}[r]
}

type usage [resources]limitMeter

// An account holds what one principal uses and may use.
type account struct {
	principal string
	used      usage
	limits    [resources]atomic.Int64
	reads     *sema.Semaphore
	bodies    atomic.Int64 // see rpcBody
}

// accounts holds the accounts of all principals.
type accounts struct {
	service   *service
	used      usage // sum over all accounts
	limits    [resources]int64
	reads     *sema.Semaphore
	bodies    atomic.Int64
	anonymous *account // the account of callers without a principal

	mu  sync.RWMutex
	all map[string]*account // by principal
}

// readWait bounds how long a request waits for a read permit.
const readWait = 5 * time.Second

func newAccounts(s *service) *accounts {
	l := s.options.Limits
	a := &accounts{
		service: s, all: map[string]*account{}, reads: sema.New(l.Reads, sema.MaxWait(readWait)), limits: [...]int64{l.Waiting, l.Streams, l.Held, l.Names},
	}
	a.anonymous = a.of("")
	return a
}

// of returns the account of a principal, and creates it if needed.
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

// refresh recalculates the limits of all accounts after the tokens have changed.
func (a *accounts) refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		a.limit(one)
	}
}

// limit sets the limits of an account.
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
		share := a.limits[r]
		if !alone {
			share = max(1, share/2)
		}
		one.limits[r].Store(cmp.Or(set[r], share))
	}
}

// take counts one more of a resource, unless the server's or the principal's limit is
// reached. Pair it with put.
func (a *accounts) take(one *account, r resource) error {
	all, own := a.limits[r], one.limits[r].Load()
	mine, everyones := a.add(one, r)
	switch {
	case everyones > all:
		a.put(one, r)
		return a.busy(one, r, all)
	case mine > own:
		a.put(one, r)
		return a.over(one, r, own)
	}
	return nil
}

// takeSwept calls take. At a limit, it first removes expired leases and sessions.
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

// add counts one more of a resource, whatever the limits: the resource already exists.
func (a *accounts) add(one *account, r resource) (mine, everyones int64) {
	mine, everyones = one.used[r].Add(1), a.used[r].Add(1)
	one.used[r].rose(mine, one.limits[r].Load())
	a.used[r].rose(everyones, a.limits[r])
	return mine, everyones
}

func (a *accounts) put(one *account, r resource) {
	one.used[r].fell(one.used[r].Add(-1), one.limits[r].Load())
	a.used[r].fell(a.used[r].Add(-1), a.limits[r])
}

// A limitError is a problem that is also an error of package sema.
type limitError struct {
	*problem
	is     error
	reason string
}

// Reason returns the result of [sema.Reason].
func (e *limitError) Reason() string { return e.reason }

// newLimitError returns the error of a limit of a kind that is expected to be no longer
// reached after a while.
func newLimitError(k *problemKind, is error, after time.Duration, format string, args ...any) error {
	p := newProblem(k, format, args...)
	p.after = after
	return &limitError{p, is, k.name}
}

func (e *limitError) Unwrap() []error { return []error{e.problem, e.is} }

// sentinel returns the sema error of a limit. Clients do not retry ErrInvalid.
func (r resource) sentinel() error {
	if r == names || r == held {
		return sema.ErrInvalid
	}
	return sema.ErrQueueFull
}

// over returns the error of a principal at its limit.
func (a *accounts) over(one *account, r resource, limit int64) error {
	a.service.counted.limited.WithLabelValues(r.String()).Inc()
	a.service.journal.warn("limit "+r.String(), "limit reached", "limit", "limits."+r.String(), "principal", one.principal, "at", limit)
	whose := "this server's clients"
	if one.principal != "" {
		whose = one.principal
	}
	return newLimitError(kindLimit, r.sentinel(), one.used[r].freeIn(), "limits.%s of %s is %d; %s, or ask the operator to raise it", r, whose, limit, r.advice())
}

// busy returns the error of a server at its limit.
func (a *accounts) busy(one *account, r resource, limit int64) error {
	a.service.counted.limited.WithLabelValues(r.String()).Inc()
	a.service.journal.warn("busy "+r.String(), "server limit reached", "limit", "limits."+r.String(), "principal", one.principal, "at", limit)
	return newLimitError(kindBusy, r.sentinel(), a.used[r].freeIn(), "limits.%s of this server is %d, for all clients together; %s, or use another server", r, limit, r.advice())
}

// read acquires a permit to read and send a snapshot or a list: data for clients that read
// slowly stays in memory. Large replies weigh more.
func (a *accounts) read(ctx context.Context, weight int64) (done func(), err error) {
	one := a.service.accountOf(ctx)
	mine, err := one.reads.Acquire(ctx, min(weight, one.reads.Stats().Capacity))
	if err != nil {
		return nil, a.readsExceeded(ctx, one, err)
	}
	all, err := a.reads.Acquire(ctx, min(weight, a.reads.Stats().Capacity))
	if err != nil {
		mine.Release()
		return nil, a.readsExceeded(ctx, one, err)
	}
	return func() { all.Release(); mine.Release() }, nil
}

func (a *accounts) readsExceeded(ctx context.Context, one *account, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.service.counted.limited.WithLabelValues("reads").Inc()
	a.service.journal.warn("limit reads", "limit reached", "limit", "limits.reads", "principal", one.principal, "error", err)
	return newLimitError(kindLimit, sema.ErrQueueFull, readWait, "limits.reads of this server is %d, half of it for one client, and no read has ended for %v; read the pending responses and retry",
		a.service.options.Limits.Reads, readWait)
}
