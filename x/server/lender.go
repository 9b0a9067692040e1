package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/desk"
)

// A lender is the desk, with what each principal waits for and holds counted and
// bounded. It is for all requests that are not of Go clients.
type lender struct {
	*desk.Desk
	server *Server

	mu    sync.Mutex
	lent  map[lentKey]*lent
	swept time.Time
}

type lentKey struct{ semaphore, id string }

// A lent is a lease that counts for an account until it is released or expires.
type lent struct {
	account *account
	until   time.Time
}

func newLender(s *Server) *lender {
	return &lender{Desk: desk.New(s.store), server: s, lent: map[lentKey]*lent{}}
}

// Acquire waits for a lease if the caller's limits have room for another waiter and
// another lease. A request that does not wait counts as well: until the store is
// certain that it must be rejected may take as long as a TTL.
func (l *lender) Acquire(ctx context.Context, r desk.Request) (lease desk.Lease, err error) {
	repeated := false
	defer func() {
		if !repeated {
			l.server.counted.acquired(err)
		}
	}()
	leave, err := l.server.wait(ctx)
	if err != nil {
		return desk.Lease{}, err
	}
	defer leave()
	one, err := l.reserve(ctx)
	if err != nil {
		return desk.Lease{}, err
	}
	if lease, err = l.Desk.Acquire(ctx, r); err != nil || lease.ID == "" {
		l.server.accounts.give(one, held)
		return lease, err
	}
	repeated = !l.keep(one, lease)
	return lease, nil
}

// Hold acquires a lease and keeps it until ctx ends, if the caller's limits have
// room for another stream and another lease.
func (l *lender) Hold(ctx context.Context, r desk.Request, tell func(desk.Lease)) error {
	leave, err := l.server.stream(ctx)
	if err != nil {
		l.server.counted.acquired(err)
		return err
	}
	defer leave()
	one, err := l.reserve(ctx)
	if err != nil {
		l.server.counted.acquired(err)
		return err
	}
	defer l.server.accounts.give(one, held)
	granted := false
	err = l.Desk.Hold(ctx, r, func(lease desk.Lease) {
		if !granted {
			granted = true
			l.server.counted.acquired(nil)
		}
		tell(lease)
	})
	switch {
	case !granted:
		l.server.counted.acquired(err)
	case !errors.Is(err, sema.ErrLost):
		l.server.counted.releases.Inc()
	}
	return err
}

// Renew renews a lease of the caller's.
func (l *lender) Renew(ctx context.Context, semaphore, id string) (desk.Lease, error) {
	lease, err := l.Desk.Renew(ctx, who(ctx).principal, semaphore, id)
	switch {
	case err == nil:
		l.renewed(ctx, lease)
	case errors.Is(err, sema.ErrLost):
		l.drop(ctx, lentKey{semaphore, id})
	}
	return lease, err
}

// Release releases a lease of the caller's. It reports whether this call did, and not
// an earlier one.
func (l *lender) Release(ctx context.Context, semaphore, id string) (first bool, err error) {
	first, err = l.Desk.ReleaseFirst(ctx, who(ctx).principal, semaphore, id)
	if err == nil || errors.Is(err, sema.ErrLost) {
		l.drop(ctx, lentKey{semaphore, id})
	}
	if first {
		l.server.counted.releases.Inc()
	}
	return first, err
}

// reserve takes the place of a lease. At the limit it first looks for leases that
// have expired.
func (l *lender) reserve(ctx context.Context) (*account, error) {
	one := l.server.accounts.caller(ctx)
	if now := time.Now(); one.used[held].Load() >= one.limits[held].Load() {
		l.sweep(now, time.Second)
	}
	return one, l.server.programs.take(one, held)
}

// keep notes a lease, whose place was taken, and reports whether it is new. With an
// idempotency key it may be one that is known.
func (l *lender) keep(one *account, lease desk.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := lentKey{lease.Semaphore, lease.ID}
	if known := l.lent[key]; known != nil {
		l.server.accounts.give(one, held)
		known.until = expiry(lease)
		return false
	}
	l.lent[key] = &lent{one, expiry(lease)}
	return true
}

func expiry(lease desk.Lease) time.Time { return time.Now().Add(2 * lease.TTL) }

// renewed notes that a lease lives on. One of another server's, or from before this
// one was started, counts from now, whatever the limit: it exists.
func (l *lender) renewed(ctx context.Context, lease desk.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := lentKey{lease.Semaphore, lease.ID}
	if known := l.lent[key]; known != nil {
		known.until = expiry(lease)
		return
	}
	one := l.server.accounts.caller(ctx)
	l.server.accounts.add(one, held)
	l.lent[key] = &lent{one, expiry(lease)}
}

// drop forgets a lease of the caller's that is over. To another principal every lease
// is lost, and lives on.
func (l *lender) drop(ctx context.Context, key lentKey) {
	one := l.server.accounts.caller(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.lent[key]; known != nil && known.account == one {
		delete(l.lent, key)
		l.server.accounts.give(one, held)
	}
}

// sweep forgets leases that have expired, not more often than told.
func (l *lender) sweep(now time.Time, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) < every {
		return
	}
	l.swept = now
	for key, known := range l.lent {
		if now.After(known.until) {
			delete(l.lent, key)
			l.server.accounts.give(known.account, held)
		}
	}
}
