package server

import (
	"context"
	"maps"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// What a batch of a Go client may come to use is counted before it is sent to the
// store, see [sessions].

// checkTickets fails if two acquires or splits of a batch have one ticket: their results
// could not be told apart.
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

// undone forgets what a batch that was not applied has reserved.
func (p *sessions) undone(one *clientSession, fresh []protocol.Ticket) {
	for _, ticket := range fresh {
		p.forget(one, ticket)
		if n, denied := one.denied[ticket]; denied && n == 0 {
			delete(one.denied, ticket)
		}
	}
}

// reserve takes what the operations of a batch may come to use, and turns those for
// which there is no room into operations that the store rejects: so that they have
// a result of their own, which is kept until the client has heard it. It returns the
// tickets that were not known before.
func (p *sessions) reserve(ctx context.Context, one *clientSession, semaphore string, b *protocol.Batch) (fresh []protocol.Ticket, err error) {
	maps.DeleteFunc(one.denied, func(_ protocol.Ticket, n uint64) bool {
		return n != 0 && n <= b.Ack || n == 0 && len(one.denied) > maxUnheard // of batches that were never replied to
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
			continue // the batch is sent again, or the place is that of the acquire that it cancels
		case queued || splits: // the store may have a result for it: then this would be one more
			return fresh, invalid("ticket %d is used already", op.Ticket)
		case p.room(ctx, one, semaphore, *b, op) == nil:
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
		b.Ops[i] = protocol.Op{Verb: op.Verb, Ticket: op.Ticket, Lease: op.Lease} // of weight 0
	}
	return fresh, nil
}

// room takes what one operation may come to use.
func (p *sessions) room(ctx context.Context, one *clientSession, semaphore string, b protocol.Batch, op protocol.Op) error {
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
		p.service.accounts.give(one.account, held)
		return err
	}
	one.queued[op.Ticket] = b.Seq
	return nil
}

// recountEvery is how often a session at its limit is compared with the store.
const recountEvery = 10 * time.Second

// recount corrects what is counted of a session by what the store has of it.
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
