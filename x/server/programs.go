package server

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// maxOps bounds a batch; Go clients send 512 operations at most. maxUnheard bounds
// the results that a session has not acknowledged: each is stored, and sent again
// with each reply.
const (
	maxOps     = 1024
	maxUnheard = 4 * maxOps
)

// programs count what Go clients have in the store, by what they say and what they
// are told. A session that was opened through another server, or before this one
// was started, is counted from when it is first heard of.
type programs struct {
	server *Server

	mu       sync.Mutex
	sessions map[programKey]*program
	swept    time.Time
}

type programKey struct {
	semaphore string
	session   protocol.Session
}

// A program is a session of a Go client. The mutex of programs may be taken while a
// program's is held; the other way round only by TryLock.
type program struct {
	account *account

	mu      sync.Mutex
	ended   bool // nothing of it counts any more
	seen    time.Time
	overdue bool // it was not heard for a TTL when reap last looked
	ttl     time.Duration
	told    uint64                           // the last result that was counted
	counted time.Time                        // when it was last compared with the store
	queued  map[protocol.Ticket]bool         // acquires in the queue, or on their way there
	splits  map[protocol.Ticket]protocol.Seq // leases to come, of the lease that is parted
	granted map[protocol.Ticket]protocol.Seq // leases by ticket
	leases  map[protocol.Seq]programLease    // each counts as held
	denied  map[protocol.Ticket]uint64       // rejected here, with the number of the result; 0: there is none yet
}

type programLease struct {
	ticket protocol.Ticket
	weight int64
}

func newPrograms(s *Server) *programs {
	return &programs{server: s, sessions: map[programKey]*program{}}
}

// opened counts a new session. Its place is taken before it is opened.
func (p *programs) opened(one *account, semaphore string, session protocol.Session, c protocol.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[programKey{semaphore, session}] = newProgram(one, c)
}

func newProgram(one *account, c protocol.Config) *program {
	return &program{
		account: one, seen: time.Now(), ttl: time.Duration(c.TTL) * time.Microsecond,
		queued: map[protocol.Ticket]bool{}, splits: map[protocol.Ticket]protocol.Seq{}, granted: map[protocol.Ticket]protocol.Seq{},
		leases: map[protocol.Seq]programLease{}, denied: map[protocol.Ticket]uint64{},
	}
}

// take takes one of what a principal may have in the store. At the limit it first
// looks for sessions that have expired.
func (p *programs) take(one *account, r resource) error {
	err := p.server.accounts.take(one, r)
	if err == nil || !p.sweep(time.Now(), time.Second) {
		return err
	}
	return p.server.accounts.take(one, r)
}

// apply sends a batch to the store. Acquires for which the principal's limits leave
// no room are rejected one by one: the rest of the batch, which renews what the
// session holds, is done.
func (p *programs) apply(ctx context.Context, semaphore string, b protocol.Batch) (protocol.Reply, error) {
	if len(b.Ops) > maxOps {
		return protocol.Reply{}, invalid("%d operations in a batch: want %d at most", len(b.Ops), maxOps)
	}
	key := programKey{semaphore, b.Session}
	p.mu.Lock()
	one := p.sessions[key]
	p.mu.Unlock()
	unknown := one == nil
	if unknown {
		one = newProgram(p.server.accounts.caller(ctx), protocol.Config{})
	}
	one.mu.Lock()
	if one.ended { // by another batch, just now
		one.mu.Unlock()
		one, unknown = newProgram(one.account, protocol.Config{}), true
		one.mu.Lock()
	}
	if one.told > b.Ack && one.told-b.Ack > maxUnheard && !b.Bye {
		one.mu.Unlock()
		return protocol.Reply{}, invalid("%d results of this session are not acknowledged: want %d at most", one.told-b.Ack, maxUnheard)
	}
	fresh := p.reserve(ctx, one, semaphore, &b)
	one.mu.Unlock()
	reply, err := p.server.store.Apply(ctx, semaphore, b)
	one.mu.Lock()
	defer one.mu.Unlock()
	switch {
	case err != nil:
		if unknown {
			p.free(one)
		}
		return reply, err
	case reply.Verdict == protocol.Unknown || b.Bye && reply.Verdict != protocol.Stale:
		p.end(key, one)
		return reply, nil
	case reply.Verdict == protocol.Stale:
		for _, ticket := range fresh {
			p.forget(one, ticket)
		}
	default:
		p.heard(one, b, &reply)
	}
	one.seen, one.ttl = time.Now(), time.Duration(reply.Config.TTL)*time.Microsecond
	if unknown {
		p.adopt(key, one)
	}
	return reply, nil
}

// adopt counts a session that was opened elsewhere, whatever the limit: it exists.
// The program's mutex is held, and nothing else knows it yet.
func (p *programs) adopt(key programKey, one *program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[key] != nil {
		p.free(one) // another batch of it came at the same time
		return
	}
	p.sessions[key] = one
	one.account.used[held].Add(1)
	p.server.accounts.used[held].Add(1)
}

// reserve takes what the operations of a batch may come to use, and turns those for
// which there is no room into operations that the store rejects: so that they have
// a result of their own, which is kept until the client has heard it.
func (p *programs) reserve(ctx context.Context, one *program, semaphore string, b *protocol.Batch) (fresh []protocol.Ticket) {
	maps.DeleteFunc(one.denied, func(_ protocol.Ticket, n uint64) bool { return n != 0 && n <= b.Ack })
	rewritten := false
	for i, op := range b.Ops {
		if op.Verb != protocol.Acquire && op.Verb != protocol.Split {
			continue
		}
		_, denied := one.denied[op.Ticket]
		if !denied && (one.queued[op.Ticket] || one.splits[op.Ticket] != 0 || one.granted[op.Ticket] != 0) {
			continue // said again
		}
		if !denied && p.room(ctx, one, semaphore, b.Session, op) == nil {
			fresh = append(fresh, op.Ticket)
			continue
		}
		if !rewritten {
			b.Ops, rewritten = append([]protocol.Op(nil), b.Ops...), true
		}
		one.denied[op.Ticket] = 0
		b.Ops[i] = protocol.Op{Verb: op.Verb, Ticket: op.Ticket, Lease: op.Lease} // of weight 0
	}
	return fresh
}

// room takes what one operation may come to use.
func (p *programs) room(ctx context.Context, one *program, semaphore string, session protocol.Session, op protocol.Op) error {
	err := p.take(one.account, held)
	if err != nil && time.Since(one.counted) > recountEvery {
		one.counted = time.Now()
		if snapshot, failed := p.server.store.Inspect(ctx, semaphore); failed == nil {
			p.recount(one, session, snapshot)
			err = p.take(one.account, held)
		}
	}
	if err != nil {
		return err
	}
	if op.Verb == protocol.Split {
		one.splits[op.Ticket] = op.Lease
		return nil
	}
	if err := p.take(one.account, waiting); err != nil {
		p.server.accounts.give(one.account, held)
		return err
	}
	one.queued[op.Ticket] = true
	return nil
}

// recountEvery is how often a session at its limit is compared with the store.
const recountEvery = 10 * time.Second

// recount corrects what is counted of a session by what the store has of it.
func (p *programs) recount(one *program, session protocol.Session, s protocol.Snapshot) {
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

// forget ends an acquire that is not in the queue any more, or never was.
func (p *programs) forget(one *program, ticket protocol.Ticket) {
	if one.queued[ticket] {
		delete(one.queued, ticket)
		p.server.accounts.give(one.account, waiting)
		p.server.accounts.give(one.account, held)
	}
	if one.splits[ticket] != 0 {
		delete(one.splits, ticket)
		p.server.accounts.give(one.account, held)
	}
}

// release ends a lease.
func (p *programs) release(one *program, seq protocol.Seq) bool {
	l, ok := one.leases[seq]
	if ok {
		delete(one.leases, seq)
		delete(one.granted, l.ticket)
		p.server.accounts.give(one.account, held)
	}
	return ok
}

// heard counts what a batch has done. Results are counted once, before the
// operations: none of these is about a lease that the client has not heard of, but
// a cancel may come after its grant.
func (p *programs) heard(one *program, b protocol.Batch, r *protocol.Reply) {
	for i, f := range r.Fates {
		if _, denied := one.denied[f.Ticket]; denied && f.Kind == protocol.Invalid {
			one.denied[f.Ticket] = f.N
			f.Kind = protocol.QueueFull
			r.Fates[i].Kind = f.Kind
		}
		if f.N > one.told {
			one.told = f.N
			p.result(one, f, r.Config)
		}
	}
	if r.Verdict != protocol.Heard {
		return
	}
	for _, op := range b.Ops {
		switch op.Verb {
		case protocol.Release:
			if l := one.leases[op.Lease]; op.Weight > 0 && op.Weight < l.weight {
				l.weight -= op.Weight
				one.leases[op.Lease] = l
			} else if p.release(one, op.Lease) {
				p.server.counted.releases.Inc()
			}
		case protocol.Cancel:
			if one.queued[op.Ticket] {
				p.server.counted.outcome("canceled")
			}
			p.forget(one, op.Ticket)
			p.release(one, one.granted[op.Ticket])
		}
	}
}

// result counts what became of one acquire, split or lease.
func (p *programs) result(one *program, f protocol.Fate, c protocol.Config) {
	of, split := one.splits[f.Ticket]
	if split = split && f.Kind != protocol.Revoked; !split {
		p.server.counted.result(f.Kind)
	}
	switch {
	case f.Kind == protocol.Revoked:
		p.release(one, f.Lease)
	case f.Kind != protocol.Granted || c.Kind == protocol.Rate: // what a rate grants is spent
		p.forget(one, f.Ticket)
	case split:
		delete(one.splits, f.Ticket)
		if l, ok := one.leases[of]; ok {
			l.weight -= f.Weight
			one.leases[of] = l
		}
		one.lease(f)
	case one.queued[f.Ticket]:
		delete(one.queued, f.Ticket)
		p.server.accounts.give(one.account, waiting)
		one.lease(f)
	}
}

// lease notes a lease whose place was taken when it was asked for.
func (one *program) lease(f protocol.Fate) {
	one.leases[f.Lease] = programLease{f.Ticket, f.Weight}
	one.granted[f.Ticket] = f.Lease
}

// end forgets a session that is over. The program's mutex is held.
func (p *programs) end(key programKey, one *program) {
	p.mu.Lock()
	known := p.sessions[key] == one
	if known {
		delete(p.sessions, key)
	}
	p.mu.Unlock()
	p.free(one)
	if known {
		p.server.accounts.give(one.account, held)
	}
}

// free gives back all that a session counts for, but for itself.
func (p *programs) free(one *program) {
	for ticket := range one.queued {
		p.forget(one, ticket)
	}
	for ticket := range one.splits {
		p.forget(one, ticket)
	}
	for seq := range one.leases {
		p.release(one, seq)
	}
	one.ended = true
}

// sweep forgets sessions that have expired, not more often than told. It reports
// whether it has looked.
func (p *programs) sweep(now time.Time, every time.Duration) bool {
	p.mu.Lock()
	if now.Sub(p.swept) < every {
		p.mu.Unlock()
		return false
	}
	p.swept = now
	expired := map[programKey]*program{}
	for key, one := range p.sessions {
		if one.mu.TryLock() { // one that is being spoken for has not expired
			if now.Sub(one.seen) > 2*one.ttl {
				expired[key] = one
			}
			one.mu.Unlock()
		}
	}
	p.mu.Unlock()
	for key, one := range expired {
		if one.mu.TryLock() {
			if now.Sub(one.seen) > 2*one.ttl {
				p.end(key, one)
			}
			one.mu.Unlock()
		}
	}
	return true
}
