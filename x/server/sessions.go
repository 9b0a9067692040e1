package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// maxOps bounds the operations in a batch; Go clients send 512 at most. maxUnacknowledged
// bounds the results that a session has not acknowledged: the store keeps each of them and sends
// it again with every reply.
const (
	maxOps            = 1024
	maxUnacknowledged = 4 * maxOps
)

// sessions counts what Go clients use in the store, from the batches that they send and
// the store's replies. A session that was opened through another server, or before this
// server started, counts from its first batch here.
//
// Clients may send anything to evade their limits. Invariant: sessions counts at least what
// the store holds. Therefore a batch that the store does not apply releases nothing; an
// operation releases only what the store held before it; and operations whose results are
// indistinguishable (two acquires with one ticket) are rejected. A client that violates the
// protocol may be counted for more than it uses.
type sessions struct {
	service *service

	mu    sync.Mutex
	all   map[sessionKey]*clientSession
	swept time.Time
}

// A sessionKey identifies a session, including its owner: a batch with another owner key,
// or of another principal, must not count for the session that it names.
type sessionKey struct {
	semaphore string
	session   protocol.Session
	owner     protocol.Owner
}

// A clientSession is a session of a Go client. It is locked while a batch is applied, so
// that batches are counted in the order in which the store applies them. Lock order: the
// mutex of sessions may be locked while a session is locked; the other way round only with
// tryLock.
type clientSession struct {
	account *account
	turn    chan struct{} // full while the session is locked; guards the fields below

	ended      bool // removed from the counts
	unknown    bool // the store has not confirmed yet that the session exists
	seen       time.Time
	overdue    bool // no batch had arrived for a TTL at reap's last check
	ttl        time.Duration
	lastResult uint64                           // number of the last result that was counted
	counted    time.Time                        // when the counts were last compared with the store
	queued     map[protocol.Ticket]uint64       // acquires that are queued or being sent, with the Seqs of their batches
	splits     map[protocol.Ticket]protocol.Seq // pending splits, with the lease that is split
	granted    map[protocol.Ticket]protocol.Seq // leases by ticket
	leases     map[protocol.Seq]sessionLease    // each counts as one held
	denied     map[protocol.Ticket]uint64       // acquires and splits rejected by this server, with the number of their result; 0: none yet
}

type sessionLease struct {
	ticket protocol.Ticket
	weight int64
	n      uint64 // number of the result that granted it
}

// lock waits until no other batch of the session is being applied.
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

// opened records a new session, which its account already counts.
func (p *sessions) opened(one *account, semaphore string, session protocol.Session, owner protocol.Owner, c protocol.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sessionKey{semaphore, session, owner}
	if p.all[key] != nil { // a batch that guessed the session's number arrived first, and has counted it
		p.service.accounts.put(one, held)
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

// apply sends a batch to the store. Acquires that exceed the principal's limits are
// rejected individually: the rest of the batch, which renews the session, is applied.
func (p *sessions) apply(ctx context.Context, semaphore string, b protocol.Batch) (protocol.Reply, error) {
	if len(b.Ops) > maxOps {
		return protocol.Reply{}, invalid("%d operations in a batch: want %d at most", len(b.Ops), maxOps)
	}
	if len(b.Ops) > 1 {
		if err := checkTickets(b.Ops); err != nil {
			return protocol.Reply{}, err
		}
	}
	key := sessionKey{semaphore, b.Session, b.Owner}
	one, err := p.enter(ctx, key)
	if err != nil {
		return protocol.Reply{}, err
	}
	defer one.unlock()
	if one.lastResult > b.Ack && one.lastResult-b.Ack > maxUnacknowledged && !b.End {
		return protocol.Reply{}, invalid("%d results of this session are not acknowledged: want %d at most", one.lastResult-b.Ack, maxUnacknowledged)
	}
	fresh, err := p.reserve(ctx, one, semaphore, &b)
	if err != nil {
		p.unreserve(one, fresh)
		return protocol.Reply{}, err
	}
	if one.unknown { // an uncounted batch must not be applied without its reply being counted
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
	}
	reply, err := p.service.store.Apply(ctx, semaphore, b)
	switch {
	case err != nil: // the batch may have been applied
		if one.unknown {
			p.endLocked(key, one)
		}
		return reply, err
	case reply.Status == protocol.Unknown || b.End && reply.Status == protocol.Applied:
		p.endLocked(key, one)
		return reply, nil
	case reply.Status == protocol.Stale:
		p.unreserve(one, fresh)
	default:
		p.countReply(one, b, &reply)
	}
	one.unknown, one.seen, one.ttl = false, time.Now(), time.Duration(reply.Config.TTL)*time.Microsecond
	return reply, nil
}

// enter returns the session with a key, locked. A session that was opened elsewhere counts
// from now on, whatever the limit. If the store does not know it, its first batch ends it.
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
		one.unlock() // another batch or the sweep has just ended the session
	}
}

// forget stops counting an acquire or split that is no longer pending, or never was.
func (p *sessions) forget(one *clientSession, ticket protocol.Ticket) {
	if _, queued := one.queued[ticket]; queued {
		delete(one.queued, ticket)
		p.service.accounts.put(one.account, waiting)
		p.service.accounts.put(one.account, held)
	}
	if one.splits[ticket] != 0 {
		delete(one.splits, ticket)
		p.service.accounts.put(one.account, held)
	}
}

// release stops counting a lease. It reports whether the lease was counted.
func (p *sessions) release(one *clientSession, seq protocol.Seq) bool {
	l, ok := one.leases[seq]
	if ok {
		delete(one.leases, seq)
		if one.granted[l.ticket] == seq { // the ticket may have been reused
			delete(one.granted, l.ticket)
		}
		p.service.accounts.put(one.account, held)
	}
	return ok
}

// countReply counts the effects of a batch. Its operations release only what was counted before
// the reply: a grant in the reply may be later than the operations.
func (p *sessions) countReply(one *clientSession, b protocol.Batch, r *protocol.Reply) {
	before := one.lastResult
	for i, f := range r.Results {
		if _, denied := one.denied[f.Ticket]; denied && f.Kind == protocol.Invalid {
			one.denied[f.Ticket] = f.N
			f.Kind = protocol.QueueFull
			r.Results[i].Kind = f.Kind
		}
		if f.N > one.lastResult {
			one.lastResult = f.N
			p.countResult(one, f, r.Config)
		}
	}
	if r.Status != protocol.Applied {
		return
	}
	for i, op := range b.Ops {
		switch op.Verb {
		case protocol.Release:
			p.countRelease(one, op, before)
		case protocol.Cancel:
			again := slices.ContainsFunc(b.Ops[i:], func(o protocol.Op) bool { return o.Verb == protocol.Acquire && o.Ticket == op.Ticket })
			if _, queued := one.queued[op.Ticket]; queued && !again {
				p.forget(one, op.Ticket)
			}
			// The store can find the lease of a ticket until its grant is acknowledged.
			if l := one.leases[one.granted[op.Ticket]]; l.n > b.Ack && l.n <= before {
				p.release(one, one.granted[op.Ticket])
			}
		}
	}
}

// countRelease counts the release of all or part of a lease that was granted before.
func (p *sessions) countRelease(one *clientSession, op protocol.Op, before uint64) {
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

// countResult counts the result of an acquire, a split or a revocation.
func (p *sessions) countResult(one *clientSession, f protocol.Result, c protocol.Config) {
	of, split := one.splits[f.Ticket]
	split = split && f.Kind != protocol.Revoked
	switch {
	case f.Kind == protocol.Revoked:
		p.release(one, f.Lease)
	case f.Kind != protocol.Granted || c.Kind == protocol.Rate: // a rate's permits are not held
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
			p.service.accounts.put(one.account, waiting)
		} else { // the acquire was sent through another server
			p.service.accounts.add(one.account, held)
		}
		one.lease(f)
	}
}

// lease records a granted lease, which the account already counts.
func (one *clientSession) lease(f protocol.Result) {
	one.leases[f.Lease] = sessionLease{f.Ticket, f.Weight, f.N}
	one.granted[f.Ticket] = f.Lease
}

// endLocked removes a session that has ended, and stops counting what the session uses. The
// caller has locked the session.
func (p *sessions) endLocked(key sessionKey, one *clientSession) {
	p.mu.Lock()
	known := p.all[key] == one
	if known {
		delete(p.all, key)
	}
	p.mu.Unlock()
	p.releaseAll(one)
	if known {
		p.service.accounts.put(one.account, held)
	}
}

// releaseAll stops counting everything that a session uses, except for the session itself.
func (p *sessions) releaseAll(one *clientSession) {
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

// sweep removes sessions that have expired. It runs at most once per interval, and reports
// whether it ran.
func (p *sessions) sweep(now time.Time, every time.Duration) bool {
	p.mu.Lock()
	if now.Sub(p.swept) < every {
		p.mu.Unlock()
		return false
	}
	p.swept = now
	expired := map[sessionKey]*clientSession{}
	for key, one := range p.all {
		if one.tryLock() { // a session with a batch in progress has not expired
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
				p.endLocked(key, one)
			}
			one.unlock()
		}
	}
	return true
}
