package server

import (
	"context"
	"slices"
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

// sessions count what Go clients have in the store, by what they send and what the
// store replies. A session that was opened through another server, or before this one
// was started, is counted from its first batch here.
//
// Clients may send anything to evade their limits. Invariant: what is counted is at
// least what the store has. So a batch that the store does not apply ends nothing, an
// operation ends only what the store had before it, and what cannot be told apart (two
// acquires with one ticket) is rejected. A client that breaks the protocol may be
// counted for more than it has.
type sessions struct {
	service *service

	mu    sync.Mutex
	all   map[sessionKey]*clientSession
	swept time.Time
}

// A sessionKey contains the owner: a batch with another key, or of another principal,
// must not count for the session it names.
type sessionKey struct {
	semaphore string
	session   protocol.Session
	owner     protocol.Owner
}

// A session is a session of a Go client. It is locked while a batch is applied, so that
// batches are counted in the order in which the store has seen them. The mutex of
// sessions may be taken while a session is locked; the other way round only by tryLock.
type clientSession struct {
	account *account
	turn    chan struct{} // full while it is locked; guards what follows

	ended   bool // nothing of it counts any more
	unknown bool // the store has not replied yet that there is such a session
	seen    time.Time
	overdue bool // it was not heard for a TTL when reap last looked
	ttl     time.Duration
	told    uint64                           // the last result that was counted
	counted time.Time                        // when it was last compared with the store
	queued  map[protocol.Ticket]uint64       // acquires in the queue, or on their way there, and the Seqs of their batches
	splits  map[protocol.Ticket]protocol.Seq // leases to come, of the lease that is parted
	granted map[protocol.Ticket]protocol.Seq // leases by ticket
	leases  map[protocol.Seq]sessionLease    // each counts as held
	denied  map[protocol.Ticket]uint64       // rejected here, with the number of the result; 0: there is none yet
}

type sessionLease struct {
	ticket protocol.Ticket
	weight int64
	n      uint64 // of the result that granted it
}

// lock waits until no other batch of the session is applied.
func (one *clientSession) lock(ctx context.Context) error {
	select {
	case one.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (one *clientSession) tryLock() bool {
	select {
	case one.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (one *clientSession) unlock() { <-one.turn }

func newSessions(s *service) *sessions {
	return &sessions{service: s, all: map[sessionKey]*clientSession{}}
}

// opened counts a new session, whose place is taken before it is opened.
func (p *sessions) opened(one *account, semaphore string, session protocol.Session, owner protocol.Owner, c protocol.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sessionKey{semaphore, session, owner}
	if p.all[key] != nil { // a batch that guessed its number was quicker, and has counted it
		p.service.accounts.give(one, held)
		return
	}
	p.all[key] = newClientSession(one, c)
}

func newClientSession(one *account, c protocol.Config) *clientSession {
	return &clientSession{
		account: one, turn: make(chan struct{}, 1), seen: time.Now(), ttl: time.Duration(c.TTL) * time.Microsecond,
		queued: map[protocol.Ticket]uint64{}, splits: map[protocol.Ticket]protocol.Seq{}, granted: map[protocol.Ticket]protocol.Seq{},
		leases: map[protocol.Seq]sessionLease{}, denied: map[protocol.Ticket]uint64{},
	}
}

// apply sends a batch to the store. Acquires for which the principal's limits leave
// no room are rejected one by one: the rest of the batch, which renews what the
// session holds, is done.
func (p *sessions) apply(ctx context.Context, semaphore string, b protocol.Batch) (protocol.Reply, error) {
	if len(b.Ops) > maxOps {
		return protocol.Reply{}, invalid("%d operations in a batch: want %d at most", len(b.Ops), maxOps)
	}
	if err := checkTickets(b.Ops); err != nil {
		return protocol.Reply{}, err
	}
	key := sessionKey{semaphore, b.Session, b.Owner}
	one, err := p.enter(ctx, key)
	if err != nil {
		return protocol.Reply{}, err
	}
	defer one.unlock()
	if one.told > b.Ack && one.told-b.Ack > maxUnheard && !b.End {
		return protocol.Reply{}, invalid("%d results of this session are not acknowledged: want %d at most", one.told-b.Ack, maxUnheard)
	}
	fresh, err := p.reserve(ctx, one, semaphore, &b)
	if err != nil {
		p.undone(one, fresh)
		return protocol.Reply{}, err
	}
	if one.unknown { // what is not counted yet must not be applied without its reply
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
	}
	reply, err := p.service.store.Apply(ctx, semaphore, b)
	switch {
	case err != nil: // it may have been applied
		if one.unknown {
			p.end(key, one)
		}
		return reply, err
	case reply.Status == protocol.Unknown || b.End && reply.Status == protocol.Applied:
		p.end(key, one)
		return reply, nil
	case reply.Status == protocol.Stale:
		p.undone(one, fresh)
	default:
		p.heard(one, b, &reply)
	}
	one.unknown, one.seen, one.ttl = false, time.Now(), time.Duration(reply.Config.TTL)*time.Microsecond
	return reply, nil
}

// enter returns the session of a session, locked. One that was opened elsewhere counts
// from now, whatever the limit; if the store does not know it, its first batch ends it.
func (p *sessions) enter(ctx context.Context, key sessionKey) (*clientSession, error) {
	for {
		p.mu.Lock()
		one := p.all[key]
		if one == nil {
			one = newClientSession(p.service.accountOf(ctx), protocol.Config{})
			one.unknown = true
			one.turn <- struct{}{}
			p.all[key] = one
			p.service.accounts.add(one.account, held)
			p.mu.Unlock()
			return one, nil
		}
		p.mu.Unlock()
		if err := one.lock(ctx); err != nil {
			return nil, err
		}
		if !one.ended {
			return one, nil
		}
		one.unlock() // another batch, or the sweep, has just ended it
	}
}

// forget ends an acquire that is not in the queue any more, or never was.
func (p *sessions) forget(one *clientSession, ticket protocol.Ticket) {
	if _, queued := one.queued[ticket]; queued {
		delete(one.queued, ticket)
		p.service.accounts.give(one.account, waiting)
		p.service.accounts.give(one.account, held)
	}
	if one.splits[ticket] != 0 {
		delete(one.splits, ticket)
		p.service.accounts.give(one.account, held)
	}
}

// release ends a lease.
func (p *sessions) release(one *clientSession, seq protocol.Seq) bool {
	l, ok := one.leases[seq]
	if ok {
		delete(one.leases, seq)
		if one.granted[l.ticket] == seq { // a ticket may have been used again
			delete(one.granted, l.ticket)
		}
		p.service.accounts.give(one.account, held)
	}
	return ok
}

// heard counts what a batch has done. Its operations end only what the server knew
// before the reply: a grant of the reply may be later than they are.
func (p *sessions) heard(one *clientSession, b protocol.Batch, r *protocol.Reply) {
	before := one.told
	for i, f := range r.Results {
		if _, denied := one.denied[f.Ticket]; denied && f.Kind == protocol.Invalid {
			one.denied[f.Ticket] = f.N
			f.Kind = protocol.QueueFull
			r.Results[i].Kind = f.Kind
		}
		if f.N > one.told {
			one.told = f.N
			p.result(one, f, r.Config)
		}
	}
	if r.Status != protocol.Applied {
		return
	}
	for i, op := range b.Ops {
		switch op.Verb {
		case protocol.Release:
			p.returned(one, op, before)
		case protocol.Cancel:
			again := slices.ContainsFunc(b.Ops[i:], func(o protocol.Op) bool { return o.Verb == protocol.Acquire && o.Ticket == op.Ticket })
			if _, queued := one.queued[op.Ticket]; queued && !again {
				p.service.counted.count("canceled")
				p.forget(one, op.Ticket)
			}
			// The store knows the lease of a ticket until the grant is acknowledged.
			if l := one.leases[one.granted[op.Ticket]]; l.n > b.Ack && l.n <= before {
				p.release(one, one.granted[op.Ticket])
			}
		}
	}
}

// returned counts the release of a lease that was granted before, or of a part of it.
func (p *sessions) returned(one *clientSession, op protocol.Op, before uint64) {
	l, ok := one.leases[op.Lease]
	switch {
	case !ok || l.n > before || op.Weight < 0:
	case op.Weight > 0 && op.Weight < l.weight:
		l.weight -= op.Weight
		one.leases[op.Lease] = l
	case p.release(one, op.Lease):
		p.service.counted.releases.Inc()
	}
}

// result counts what became of one acquire, split or lease.
func (p *sessions) result(one *clientSession, f protocol.Result, c protocol.Config) {
	of, split := one.splits[f.Ticket]
	if split = split && f.Kind != protocol.Revoked; !split {
		p.service.counted.result(f.Kind)
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
	default:
		if _, queued := one.queued[f.Ticket]; queued {
			delete(one.queued, f.Ticket)
			p.service.accounts.give(one.account, waiting)
		} else { // it was asked for through another server
			p.service.accounts.add(one.account, held)
		}
		one.lease(f)
	}
}

// lease notes a lease whose place is taken.
func (one *clientSession) lease(f protocol.Result) {
	one.leases[f.Lease] = sessionLease{f.Ticket, f.Weight, f.N}
	one.granted[f.Ticket] = f.Lease
}

// end forgets a session that is over, and is locked.
func (p *sessions) end(key sessionKey, one *clientSession) {
	p.mu.Lock()
	known := p.all[key] == one
	if known {
		delete(p.all, key)
	}
	p.mu.Unlock()
	p.free(one)
	if known {
		p.service.accounts.give(one.account, held)
	}
}

// free gives back all that a session counts for, but for itself.
func (p *sessions) free(one *clientSession) {
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
func (p *sessions) sweep(now time.Time, every time.Duration) bool {
	p.mu.Lock()
	if now.Sub(p.swept) < every {
		p.mu.Unlock()
		return false
	}
	p.swept = now
	expired := map[sessionKey]*clientSession{}
	for key, one := range p.all {
		if one.tryLock() { // one that is being spoken for has not expired
			if now.Sub(one.seen) > 2*one.ttl {
				expired[key] = one
			}
			one.unlock()
		}
	}
	p.mu.Unlock()
	for key, one := range expired {
		if one.tryLock() {
			if now.Sub(one.seen) > 2*one.ttl {
				p.end(key, one)
			}
			one.unlock()
		}
	}
	return true
}
