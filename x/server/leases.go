package server

import (
	"sync"
	"time"

	"github.com/sema-go/sema/internal/leasing"
)

// leases count what clients without a session hold, each for the account of its
// principal, until it is released or has expired. A lease that was granted by another
// server counts from its first renewal here.
type leases struct {
	service *service

	mu    sync.Mutex
	all   map[leaseKey]*countedLease
	swept time.Time
}

// A leaseKey names a lease: a semaphore, and the id with which the lease is renewed.
type leaseKey struct{ semaphore, id string }

type countedLease struct {
	account *account
	until   time.Time
}

func newLeases(s *service) *leases { return &leases{service: s, all: map[leaseKey]*countedLease{}} }

// keep notes a lease, whose place was taken, and reports whether it is new. With an
// idempotency key it may be one that is known.
func (l *leases) keep(one *account, lease leasing.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := leaseKey{lease.Semaphore, lease.ID}
	if known := l.all[key]; known != nil {
		l.service.accounts.give(one, held)
		known.until = expiry(lease)
		return false
	}
	l.all[key] = &countedLease{one, expiry(lease)}
	return true
}

func expiry(lease leasing.Lease) time.Time { return time.Now().Add(2 * lease.TTL) }

// renewed notes that a lease was renewed. One of another server's, or from before this
// one was started, counts from now, whatever the limit: it exists.
func (l *leases) renewed(one *account, lease leasing.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := leaseKey{lease.Semaphore, lease.ID}
	if known := l.all[key]; known != nil {
		known.until = expiry(lease)
		return
	}
	l.service.accounts.add(one, held)
	l.all[key] = &countedLease{one, expiry(lease)}
}

// left notes a place that was taken for a request whose client has gone.
func (l *leases) left(one *account, key leaseKey, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.all[key]; known != nil {
		l.service.accounts.give(known.account, held)
	}
	l.all[key] = &countedLease{one, until}
}

// drop forgets a lease of an account that has ended. To another principal every lease
// is lost, and lives on.
func (l *leases) drop(one *account, key leaseKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.all[key]; known != nil && known.account == one {
		delete(l.all, key)
		l.service.accounts.give(one, held)
	}
}

// sweep forgets leases that have expired, at most once in the given time.
func (l *leases) sweep(now time.Time, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) < every {
		return
	}
	l.swept = now
	for key, known := range l.all {
		if now.After(known.until) {
			delete(l.all, key)
			l.service.accounts.give(known.account, held)
		}
	}
}
