package server

import (
	"sync"
	"time"

	"github.com/sema-go/sema/internal/leasing"
)

// leases counts the leases of clients without a session, each for the account of its
// principal, until the lease is released or has expired. A lease that another server
// granted counts from its first renewal here.
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

// keep records a lease that its account already counts. A request with an idempotency key may
// return a lease that is already recorded.
func (l *leases) keep(one *account, lease leasing.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := leaseKey{lease.Semaphore, lease.ID}
	if known := l.all[key]; known != nil {
		l.service.accounts.put(one, held)
		known.until = expiry(lease)
		return
	}
	l.all[key] = &countedLease{one, expiry(lease)}
}

func expiry(lease leasing.Lease) time.Time { return time.Now().Add(2 * lease.TTL) }

// renewed records the renewal of a lease. A lease that another server granted, or that was
// granted before this server started, counts from now on. No limit applies: the lease
// exists.
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

// abandon keeps counting a request whose client has disconnected, under a key and until a
// time.
func (l *leases) abandon(one *account, key leaseKey, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.all[key]; known != nil {
		l.service.accounts.put(known.account, held)
	}
	l.all[key] = &countedLease{one, until}
}

// drop stops counting a lease that has ended, if it belongs to the account. Another
// principal's request for the lease fails with ErrLost, but the lease still exists.
func (l *leases) drop(one *account, key leaseKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.all[key]; known != nil && known.account == one {
		delete(l.all, key)
		l.service.accounts.put(one, held)
	}
}

// sweep stops counting leases that have expired. It runs at most once per interval.
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
			l.service.accounts.put(known.account, held)
		}
	}
}
