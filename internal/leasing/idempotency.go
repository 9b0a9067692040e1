package leasing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// An attempt is a running request with an idempotency key.
type attempt struct {
	weight int64
	done   chan struct{}
	lease  Lease
	err    error
}

// acquireOnce acquires for a key unless a request with that key exists. Such a request may be
// a concurrent one of this manager. It may also be one of any manager, with a lease or a
// ticket in the store.
func (m *Manager) acquireOnce(ctx context.Context, r Request) (Lease, error) {
	digest := sha256.Sum256([]byte(r.Principal + "\x00" + r.Semaphore + "\x00" + r.Key))
	mark := hex.EncodeToString(digest[:12])
	why := sema.ErrTimeout
	if r.Wait == 0 {
		why = sema.ErrFull
	}
	start := time.Now()
	var over <-chan time.Time // nil: no bound
	if !r.Unbounded {
		timer := time.NewTimer(cmp.Or(r.Wait, storeTimeout))
		defer timer.Stop()
		over = timer.C
	}
	for {
		m.mu.Lock()
		other := m.attempts[mark]
		if other == nil {
			break
		}
		m.mu.Unlock()
		if other.weight != r.Weight {
			return Lease{}, r.keyMisused(other.weight)
		}
		select {
		case <-other.done:
			if other.err == nil {
				return other.lease, nil
			}
		case <-over:
			return Lease{}, &sema.Error{Op: "acquire", Name: r.Semaphore, Weight: r.Weight, Err: why,
				Detail: "another request with the same key still waits", Advice: "repeat the request, or let it wait longer"}
		case <-ctx.Done():
			return Lease{}, context.Cause(ctx)
		}
	}
	mine := &attempt{weight: r.Weight, done: make(chan struct{})}
	m.attempts[mark] = mine
	m.mu.Unlock()
	if r.Wait > 0 {
		r.Wait = max(r.Wait-time.Since(start), 1)
	}
	mine.lease, mine.err = m.acquireOrResume(ctx, r, mark)
	m.mu.Lock()
	delete(m.attempts, mark)
	m.mu.Unlock()
	close(mine.done)
	return mine.lease, mine.err
}

// acquireOrResume continues with the lease or the ticket that has the mark, or acquires.
func (m *Manager) acquireOrResume(ctx context.Context, r Request, mark string) (Lease, error) {
	over := time.Now().Add(r.Wait)
	var sess *session // session of the ticket
	for {
		snapshot, err := m.inspect(ctx, r.Semaphore)
		if err != nil {
			return Lease{}, err
		}
		if i := markedLease(snapshot, mark, r.Principal); i >= 0 {
			return m.reuse(ctx, r, snapshot, i)
		}
		i := slices.IndexFunc(snapshot.Queue, func(t protocol.TicketInfo) bool {
			return t.Details.Key == mark && serves(snapshot, t.Session, r.Principal)
		})
		if i < 0 {
			break
		}
		t := snapshot.Queue[i]
		if t.Weight != r.Weight {
			return Lease{}, r.keyMisused(t.Weight)
		}
		if sess == nil || sess.number != t.Session || sess.ticket != t.Ticket {
			owner, _ := ownerOf(snapshot, t.Session)
			sess = m.newSession(r.Semaphore, t.Session, owner, snapshot.Config)
			sess.ticket, sess.foreign = t.Ticket, true
			// Once this manager has sent a batch, the other one does not cancel the ticket. It
			// may have done so just before: inspect again.
			_, err = sess.lockAndSend(ctx, nil)
			sess.ack = 0 // read the results again in wait
			if err != nil && !errors.Is(err, sema.ErrLost) {
				return Lease{}, err
			}
			continue
		}
		lease, err := sess.wait(ctx, r)
		left := time.Until(over)
		if ended := errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrTimeout); !ended || left <= 0 && !r.Unbounded {
			return lease, err
		}
		sess = nil // the ticket had a shorter wait
		if !r.Unbounded {
			r.Wait = left
		}
	}
	marked := r
	marked.mark = mark
	lease, err := m.acquire(ctx, marked)
	if err != nil || lease.ID == "" {
		return lease, err
	}
	return m.oldest(ctx, r, lease, mark)
}

// oldest returns the oldest lease with the mark. Two managers with concurrent requests may
// have two leases, and both see the same oldest one.
func (m *Manager) oldest(ctx context.Context, r Request, mine Lease, mark string) (Lease, error) {
	snapshot, err := m.inspect(ctx, r.Semaphore)
	if err != nil {
		return mine, nil
	}
	i := markedLease(snapshot, mark, r.Principal)
	if i < 0 || snapshot.Leases[i].Seq >= mine.Fence.Seq {
		return mine, nil
	}
	if err := m.releaseDetached(r, mine.ID); err != nil {
		return Lease{}, err
	}
	return m.reuse(ctx, r, snapshot, i)
}

// reuse returns a lease that was granted to the same request before.
func (m *Manager) reuse(ctx context.Context, r Request, s protocol.Snapshot, i int) (Lease, error) {
	l := s.Leases[i]
	if l.Weight != r.Weight {
		return Lease{}, r.keyMisused(l.Weight)
	}
	owner, _ := ownerOf(s, l.Session)
	h := newLeaseID(r.Semaphore, l.Seq, l.Session, owner.Key, m.keyInID)
	return m.adopt(h, owner, s, i).renew(ctx, h)
}

func markedLease(s protocol.Snapshot, mark, principal string) int {
	return slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool {
		return l.Details.Key == mark && serves(s, l.Session, principal) // a program chooses its own details
	})
}

// keyMisused returns the error of a key that was used for another request.
func (r Request) keyMisused(weight int64) error {
	return &sema.Error{Op: "acquire", Name: r.Semaphore, Weight: r.Weight, Err: sema.ErrInvalid,
		Detail: fmt.Sprintf("the same key was used for a weight of %d; each request needs its own key", weight)}
}
