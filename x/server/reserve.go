package server

import (
	"context"
	"maps"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// What a Go client's batch may use is counted before the batch is sent to the store, see
// [sessions].

// checkTickets fails if two acquires or splits of a batch have the same ticket: their
// results would be indistinguishable.
func checkTickets(ops []protocol.Op) error {
	seen := make(map[protocol.Ticket]bool, len(ops))
	for _, op := range ops {
		if op.Verb != protocol.Acquire && op.Verb != protocol.Split {
			continue
		}
		if seen[op.Ticket] {
			return invalid("ticket %d is used twice in a batch", op.Ticket)
		}
		seen[op.Ticket] = true
	}
	return nil
}

// unreserve removes the reservations of a batch that was not applied.
func (p *sessions) unreserve(one *clientSession, fresh []protocol.Ticket) {
	for _, ticket := range fresh {
		p.forget(one, ticket)
		if n, denied := one.denied[ticket]; denied && n == 0 {
			delete(one.denied, ticket)
		}
	}
}

// reserve counts what the operations of a batch may use. It rewrites operations that exceed
// the limits into operations that the store rejects. So each has its own result, which the
// store keeps until the client acknowledges it. reserve returns the new tickets.
func (p *sessions) reserve(ctx context.Context, one *clientSession, semaphore string, b *protocol.Batch) (fresh []protocol.Ticket, err error) {
	maps.DeleteFunc(one.denied, func(_ protocol.Ticket, n uint64) bool {
		return n != 0 && n <= b.Ack || n == 0 && len(one.denied) > maxUnacknowledged // of batches without a reply
	})
	rewritten, cancelled := false, map[protocol.Ticket]bool{}
	for i, op := range b.Ops {
		switch op.Verb {
		case protocol.Acquire, protocol.Split:
		case protocol.Cancel:
			cancelled[op.Ticket] = true
			continue
		default:
			continue
		}
		_, denied := one.denied[op.Ticket]
		at, queued := one.queued[op.Ticket]
		_, splits := one.splits[op.Ticket]
		switch {
		case denied:
		case queued && op.Verb == protocol.Acquire && (at == b.Seq || cancelled[op.Ticket]), splits && op.Verb == protocol.Split:
			continue // the batch is resent, or it cancels the acquire that was counted
		case queued || splits: // the store may have a result for it, and this would be another one
			return fresh, invalid("ticket %d is used already", op.Ticket)
		case p.reserveOne(ctx, one, semaphore, *b, op) == nil:
			fresh = append(fresh, op.Ticket)
			continue
		}
		if !rewritten {
			b.Ops, rewritten = append([]protocol.Op(nil), b.Ops...), true
		}
		if !denied {
			fresh = append(fresh, op.Ticket)
			one.denied[op.Ticket] = 0
		}
		b.Ops[i] = protocol.Op{Verb: op.Verb, Ticket: op.Ticket, Lease: op.Lease} // the store rejects weight 0
	}
	return fresh, nil
}

// reserveOne counts what one operation may use, if the limits allow it.
func (p *sessions) reserveOne(ctx context.Context, one *clientSession, semaphore string, b protocol.Batch, op protocol.Op) error {
	err := p.service.accounts.takeSwept(one.account, held)
	if err != nil && time.Since(one.counted) > recountEvery {
		one.counted = time.Now()
		if snapshot, failed := p.service.store.Inspect(ctx, semaphore); failed == nil {
			p.recount(one, b.Session, snapshot)
			err = p.service.accounts.takeSwept(one.account, held)
		}
	}
	if err != nil {
		return err
	}
	if op.Verb == protocol.Split {
		one.splits[op.Ticket] = op.Lease
		return nil
	}
	if err := p.service.accounts.takeSwept(one.account, waiting); err != nil {
		p.service.accounts.put(one.account, held)
		return err
	}
	one.queued[op.Ticket] = b.Seq
	return nil
}

// recountEvery is the shortest interval at which a session at its limit is compared with the
// store.
const recountEvery = 10 * time.Second

// recount stops counting leases of a session that the store no longer has.
func (p *sessions) recount(one *clientSession, session protocol.Session, s protocol.Snapshot) {
	there := map[protocol.Seq]bool{}
	for _, l := range s.Leases {
		if l.Session == session {
			there[l.Seq] = true
		}
	}
	for seq := range one.leases {
		if !there[seq] {
			p.release(one, seq)
		}
	}
}
