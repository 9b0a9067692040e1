package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/history"
)

const (
	every   = time.Second     // interval at which watched data is read
	timeout = 5 * time.Second // of one read
	atOnce  = 8               // semaphores that are read concurrently

	// mostShared bounds the number of cached pages: viewers choose the cursor.
	mostShared = 100
)

// A reader reads the store for all viewers. Identical reads are single-flight, and a recent
// result is reused. A read is not cancelled when a viewer leaves: other viewers may wait for
// it.
type reader struct {
	store    Store
	measures Measures
	trouble  func(error) // called when the store stops responding
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup
	turns    chan struct{} // full while atOnce semaphores are being read

	mu        sync.Mutex
	changes   int // number of changes by viewers; earlier results are outdated
	closed    bool
	rows      cached[*listing]
	listed    *listing // the last one
	clock     cached[clock]
	probe     cached[struct{}]
	users     cached[*clientList]
	read      map[entryKey]*entry
	lastSweep time.Time
	rendered  *parts // of the rows
	sparks    sparks
	usages    usages

	failing time.Time // when the store stopped responding; zero: it responds
}

func newReader(s Store, m Measures, trouble func(error)) *reader {
	if m == nil {
		m = noMeasures{}
	}
	r := &reader{
		store: s, measures: m, trouble: trouble, turns: make(chan struct{}, atOnce), read: map[entryKey]*entry{}, rendered: newParts(),
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// close waits until nothing is being read.
func (r *reader) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.running.Wait()
}

// changed makes later reads ignore earlier results.
func (r *reader) changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// A cached holds the last result of a repeated read.
type cached[T any] struct {
	last *result[T] // may be in progress; the reader's lock guards the pointer
	used time.Time
}

// A result is complete when done is closed.
type result[T any] struct {
	changes  int       // the reader's changes at the time of the request
	made, at time.Time // when it was requested; when the store was read, guarded by the reader's lock
	done     chan struct{}
	value    T
	err      error
}

var (
	errEnding = &sema.Error{Op: "watch", Err: sema.ErrClosed, Detail: "this server is being stopped"}
	errNoTurn = fmt.Errorf("%w: the store is slow and did not reply within %v; it is read again", sema.ErrUnavailable, timeout)
)

// fetch returns a result that is no older than within, or one in progress. If turns is true, the
// read waits until fewer than atOnce are in progress.
func fetch[T any](r *reader, c *cached[T], within time.Duration, turns bool, read func(context.Context) (T, error)) *result[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	c.used = now
	if last := c.last; last != nil && last.changes == r.changes && (!last.complete() || now.Sub(last.at) < within) {
		return last
	}
	last := &result[T]{changes: r.changes, made: now, at: now, done: make(chan struct{})}
	c.last = last
	if r.closed {
		last.err = errEnding
		close(last.done)
		return last
	}
	r.running.Go(func() { run(r, last, turns, read) })
	return last
}

func run[T any](r *reader, one *result[T], turns bool, read func(context.Context) (T, error)) {
	defer close(one.done)
	if turns {
		r.turns <- struct{}{}
		defer func() { <-r.turns }()
	}
	r.mu.Lock()
	one.at = time.Now()
	late := one.at.Sub(one.made) >= timeout
	r.mu.Unlock()
	if late {
		one.err = errNoTurn
		return
	}
	ctx, cancel := context.WithTimeout(r.life, timeout)
	defer cancel()
	one.value, one.err = read(ctx)
}

func (one *result[T]) complete() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// wait returns the result, or an error if ctx ends first.
func (one *result[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
	}
	if one.complete() {
		return one.value, one.err
	}
	var none T
	return none, errNoTurn
}

// A clock is the store's clock, and how long the store took to return it.
type clock struct{ ahead, took time.Duration }

// ping returns how far the store's clock, on which the times of leases are based, is ahead of
// the local one. It is read rarely: clocks drift by less than pages show.
func (r *reader) ping() *result[clock] {
	return fetch(r, &r.clock, 5*every, false, func(ctx context.Context) (clock, error) {
		asked := time.Now()
		there, err := r.store.Ping(ctx)
		c := clock{took: time.Since(asked)}
		if err == nil && !there.IsZero() {
			c.ahead = time.Until(there)
		}
		return c, err
	})
}

// gap is the longest possible time between two consecutive reads.
const gap = 2*every + timeout

// An entry is the cached page of one semaphore, with its rendered parts.
type entry struct {
	cached[*snapshot]
	parts *parts
}

// An entryKey identifies a page of a semaphore.
type entryKey struct{ name, after string }

// snapshot returns a page of a semaphore that is no older than within.
func (r *reader) snapshot(ctx context.Context, key entryKey, within time.Duration) *snapshot {
	clock, e := r.ping(), r.entryOf(key)
	one := fetch(r, &e.cached, within, true, func(ctx context.Context) (*snapshot, error) { return r.inspect(ctx, key, e.parts, clock) })
	s, err := one.wait(ctx)
	if s == nil {
		s = newSnapshot(semaphore{Name: key.name}, e.parts)
		s.err, s.at = err, one.made
	}
	r.sweep()
	return s
}

func (r *reader) entryOf(key entryKey) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.read[key]
	if e == nil {
		e = &entry{parts: newParts()}
		if key.after == "" || len(r.read) < mostShared {
			r.read[key] = e
		}
	}
	e.used = time.Now()
	return e
}

// inspect reads one semaphore. A missing semaphore is a result, not an error.
func (r *reader) inspect(ctx context.Context, key entryKey, parts *parts, now *result[clock]) (*snapshot, error) {
	at := time.Now()
	stored, err := r.recent(ctx, key.name)
	if declared, ok := r.declared(key.name); ok && errors.Is(err, fs.ErrNotExist) {
		stored, err = protocol.Snapshot{Config: declared.Config, Effective: declared.Effective}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		s := newSnapshot(semaphore{Name: key.name}, parts)
		s.gone, s.at = true, at
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	parts.next()
	there, _ := now.wait(ctx) // a store without a clock uses the local one
	whole := newSemaphore(key.name, stored, at.Add(there.ahead))
	live := r.measures.Live(key.name, false)
	whole.p99, whole.free = live.HoldP99, whole.freeText(live)
	past := func() history.Curve {
		curve, _ := r.measures.Past(key.name, usageSpan)
		return curve
	}
	holdings, usage := r.usages.update(at, whole, past)
	s := newSnapshot(whole.listed(key.after), parts)
	s.holdings, s.usage = holdings, usage
	s.at = at
	s.times = r.measures.Figures(key.name, stored)
	r.measures.View(key.name, at, stored)
	return s, nil
}

// declared returns a semaphore that the operator has declared by name.
func (r *reader) declared(name string) (protocol.Summary, bool) {
	for _, s := range r.measures.Declared() {
		if s.Name == name {
			return s, true
		}
	}
	return protocol.Summary{}, false
}

// recent reads a semaphore. It records a reply, including that the semaphore does not exist.
func (r *reader) recent(ctx context.Context, name string) (protocol.Snapshot, error) {
	s, err := r.store.Recent(ctx, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		r.recovered()
	}
	return s, err
}

// sweep removes entries that are no longer watched.
func (r *reader) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.lastSweep) < every {
		return
	}
	r.lastSweep = now
	for key, e := range r.read {
		if now.Sub(e.used) > gap && e.last != nil && e.last.complete() {
			delete(r.read, key)
		}
	}
}

// recovered records that the store responds.
func (r *reader) recovered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = time.Time{}
}

// outage reports whether the store does not respond at all, and since when, after a failed read.
// One failed read is not enough: outage reads another semaphore. A reply that this semaphore does
// not exist shows that the store responds.
func (r *reader) outage(ctx context.Context, now time.Time, why error) (since time.Time, is bool) {
	soon, cancel := context.WithTimeout(ctx, 2*every)
	defer cancel()
	_, err := fetch(r, &r.probe, every, false, func(ctx context.Context) (struct{}, error) {
		_, err := r.recent(ctx, "sema-readyz")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return struct{}{}, err
	}).wait(soon)
	if err == nil || ctx.Err() != nil {
		return time.Time{}, false
	}
	r.mu.Lock()
	begins := r.failing.IsZero()
	if begins {
		r.failing = now
	}
	since = r.failing
	r.mu.Unlock()
	if begins {
		r.trouble(why)
	}
	return since, true
}
