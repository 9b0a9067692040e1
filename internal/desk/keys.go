package desk

import (
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

// An inquiry is a request with a key that is under way.
type inquiry struct {
	weight int64
	done   chan struct{}
	lease  Lease
	err    error
}

// acquireOnce acquires for a key, unless that was done before: here at the same
// time, or by any desk, as what the engine knows of leases and of the line tells.
func (d *Desk) acquireOnce(ctx context.Context, r Request) (Lease, error) {
	digest := sha256.Sum256([]byte(r.Principal + "\x00" + r.Semaphore + "\x00" + r.Key))
	mark := hex.EncodeToString(digest[:12])
	limit, why := r.Wait, sema.ErrTimeout
	if limit == 0 {
		limit, why = patience, sema.ErrFull
	}
	start := time.Now()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		d.mu.Lock()
		other := d.asking[mark]
		if other == nil {
			break
		}
		d.mu.Unlock()
		if other.weight != r.Weight {
			return Lease{}, r.mistaken(other.weight)
		}
		select {
		case <-other.done:
			if other.err == nil {
				return other.lease, nil
			}
		case <-over.C:
			return Lease{}, &sema.Error{Op: "acquire", Name: r.Semaphore, Weight: r.Weight, Err: why, Detail: "another request with the same key still waits"}
		case <-ctx.Done():
			return Lease{}, context.Cause(ctx)
		}
	}
	mine := &inquiry{weight: r.Weight, done: make(chan struct{})}
	d.asking[mark] = mine
	d.mu.Unlock()
	if r.Wait > 0 {
		r.Wait = max(r.Wait-time.Since(start), 1)
	}
	mine.lease, mine.err = d.acquireMarked(ctx, r, mark)
	d.mu.Lock()
	delete(d.asking, mark)
	d.mu.Unlock()
	close(mine.done)
	return mine.lease, mine.err
}

// acquireMarked goes on with a lease or a ticket that has the mark, or begins.
func (d *Desk) acquireMarked(ctx context.Context, r Request, mark string) (Lease, error) {
	over := time.Now().Add(r.Wait)
	var v *visit // that speaks for the ticket
	for {
		snapshot, err := d.look(ctx, r.Semaphore)
		if err != nil {
			return Lease{}, err
		}
		if i := markedLease(snapshot, mark, r.Principal); i >= 0 {
			return d.share(ctx, r, snapshot, i)
		}
		i := slices.IndexFunc(snapshot.Queue, func(t protocol.TicketInfo) bool {
			return t.Details.Key == mark && serves(snapshot, t.Session, r.Principal)
		})
		if i < 0 {
			break
		}
		t := snapshot.Queue[i]
		if t.Weight != r.Weight {
			return Lease{}, r.mistaken(t.Weight)
		}
		if v == nil || v.session != t.Session || v.ticket != t.Ticket {
			owner, _ := ownerOf(snapshot, t.Session)
			v = d.newVisit(r.Semaphore, t.Session, owner, snapshot.Config)
			v.ticket, v.foreign = t.Ticket, true
			// Once this desk has spoken, the other one does not take the ticket back. It
			// may have done so just before: look again.
			_, err = v.speak(ctx, nil)
			v.ack = 0 // what it said is heard later
			if err != nil && !errors.Is(err, sema.ErrLost) {
				return Lease{}, err
			}
			continue
		}
		lease, err := v.wait(ctx, r)
		left := time.Until(over)
		if ended := errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrTimeout); !ended || left <= 0 {
			return lease, err
		}
		r.Wait, v = left, nil // the ticket was for less
	}
	marked := r
	marked.mark = mark
	lease, err := d.acquire(ctx, marked)
	if err != nil || lease.ID == "" {
		return lease, err
	}
	return d.first(ctx, r, lease, mark)
}

// first is the oldest lease with the mark. If another desk was asked at the same
// time there are two, and both desks see that one.
func (d *Desk) first(ctx context.Context, r Request, mine Lease, mark string) (Lease, error) {
	snapshot, err := d.look(ctx, r.Semaphore)
	if err != nil {
		return mine, nil
	}
	i := markedLease(snapshot, mark, r.Principal)
	if i < 0 || snapshot.Leases[i].Seq >= mine.Fence.Seq {
		return mine, nil
	}
	if err := d.releaseLate(r, mine.ID); err != nil {
		return Lease{}, err
	}
	return d.share(ctx, r, snapshot, i)
}

// share is a lease that the same request has had before.
func (d *Desk) share(ctx context.Context, r Request, s protocol.Snapshot, i int) (Lease, error) {
	l := s.Leases[i]
	if l.Weight != r.Weight {
		return Lease{}, r.mistaken(l.Weight)
	}
	owner, _ := ownerOf(s, l.Session)
	h := newHandle(r.Semaphore, l.Seq, l.Session, owner.Key, d.keyInID)
	return d.adopt(h, owner, s, i).renew(ctx, h)
}

func markedLease(s protocol.Snapshot, mark, principal string) int {
	return slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool {
		return l.Details.Key == mark && serves(s, l.Session, principal) // a program chooses its details itself
	})
}

// mistaken is when a key is used for something else.
func (r Request) mistaken(weight int64) error {
	return &sema.Error{Op: "acquire", Name: r.Semaphore, Weight: r.Weight, Err: sema.ErrInvalid,
		Detail: fmt.Sprintf("the same key was used for a weight of %d; use another one for another request", weight)}
}
