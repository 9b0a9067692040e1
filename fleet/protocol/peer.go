package protocol

import "slices"

// A Peer is the client's side of one session: its operations, the leases it holds and until
// when, and the batch in flight. Like [State] it is pure. Times are on the client's own
// clock, which must advance while the machine sleeps and never step back. A Peer is not
// safe for concurrent use.
type Peer struct {
	session  Session
	owner    Owner
	highest  Seq // highest Seq seen, also in earlier sessions
	config   Config
	seq      uint64
	ack      uint64
	requests []Op
	waiting  map[Ticket]request // acquires and splits that are neither decided nor cancelled
	leases   map[Seq]int64      // weights held

	inFlight  *Batch
	sent      Micros // when inFlight was sent for the first time
	renewed   Micros // when the last batch that got a reply was sent for the first time
	validFor  Micros // time from renewed for which the leases are valid
	nextSend  Micros // when to send again even without operations
	notified  bool   // a notification arrived since inFlight was sent
	pollUntil Micros // end of polling every sixth of a TTL, unless the store has decided before; 0: no polling
	leaving   bool
	ended     bool
}

// A request is the purpose of a ticket.
type request struct {
	weight int64
	of     Seq // the lease to split; 0 for an acquire
}

// NewPeer returns the client's side of a session. The request that opened the session was
// sent at the given time.
func NewPeer(sent Micros, session Session, c Config, by Opener) *Peer {
	p := &Peer{
		session: session, owner: by.Owner, highest: by.Highest, config: c, sent: sent, renewed: sent, validFor: c.TTL * 2 / 3,
		waiting: map[Ticket]request{}, leases: map[Seq]int64{},
	}
	p.nextSend = p.heartbeat()
	return p
}

// heartbeat returns when the next heartbeat is due: early enough to repeat a lost one, and
// scattered so that the heartbeats of sessions do not coincide.
func (p *Peer) heartbeat() Micros {
	in := min(p.config.TTL/3, max(p.validFor/2, p.config.TTL/64)) // with a lower bound, so that heartbeats do not become ever more frequent as validFor shrinks
	const golden = 0x9e3779b97f4a7c15
	scatter := (uint64(p.session)*31 + p.seq) * golden >> 32
	return p.sent + in - Micros(scatter%uint64(in/8+1))
}

// Deadline returns the time until which the session's leases are valid: two thirds of a TTL
// after the first send of the last batch that got a reply. Counted from a later send it
// could be after the store's deadline, because the store may have applied the first send. It
// is earlier if the store replied with a shorter [Reply.Valid].
func (p *Peer) Deadline() Micros { return p.renewed + p.validFor }

// Ended reports whether the session is over: the store reported it, or the deadline has
// passed. Later replies do not revive it, because the store may have granted the permits to
// others in between.
func (p *Peer) Ended(now Micros) bool {
	p.ended = p.ended || now >= p.Deadline()
	return p.ended
}

// Holds reports whether the session holds a lease now.
func (p *Peer) Holds(now Micros, lease Seq) bool {
	_, held := p.leases[lease]
	return held && !p.Ended(now)
}

// Idle reports whether the session has no leases, no waiting acquires and nothing to send.
func (p *Peer) Idle() bool {
	return len(p.leases) == 0 && len(p.waiting) == 0 && len(p.requests) == 0 && p.inFlight == nil && !p.leaving
}

// LastSeq returns the seq of the batch with the last operation requested so far, if a batch
// has at most max operations.
func (p *Peer) LastSeq(max int) uint64 { return p.seq + uint64((len(p.requests)+max-1)/max) }

// Replied returns the seq of the last batch that got a reply.
func (p *Peer) Replied() uint64 {
	if p.inFlight != nil {
		return p.seq - 1
	}
	return p.seq
}

// Highest returns the highest Seq of this semaphore that was seen.
func (p *Peer) Highest() Seq { return p.highest }

// Polls reports whether the session polls until the store can decide, for at most two TTLs.
// It does so after an acquire that the store could not decide.
func (p *Peer) Polls(now Micros) bool { return now < p.pollUntil }

// Config returns the configuration of the semaphore as of the last reply.
func (p *Peer) Config() Config { return p.config }

// Request adds an operation to the next batch.
func (p *Peer) Request(op Op) {
	switch op.Verb {
	case Acquire:
		p.waiting[op.Ticket] = request{weight: op.Weight}
	case Split:
		p.waiting[op.Ticket] = request{op.Weight, op.Lease}
		if _, held := p.leases[op.Lease]; held { // otherwise it was revoked, and the store will report that
			p.leases[op.Lease] -= op.Weight
		}
	case Cancel:
		delete(p.waiting, op.Ticket)
		unsent := func(w Op) bool { return w.Verb == Acquire && w.Ticket == op.Ticket }
		if slices.ContainsFunc(p.requests, unsent) {
			p.requests = slices.DeleteFunc(p.requests, unsent)
			return
		}
	case Release:
		if op.Weight == 0 || op.Weight >= p.leases[op.Lease] {
			delete(p.leases, op.Lease)
		} else {
			p.leases[op.Lease] -= op.Weight
		}
	}
	p.requests = append(p.requests, op)
}

// Leave ends the session: the next batch ends it and frees its leases and tickets.
// Settlements that wait to be sent are sent before that.
func (p *Peer) Leave() {
	p.leaving = true
	p.requests = slices.DeleteFunc(p.requests, func(op Op) bool { return op.Verb != Settle })
	clear(p.waiting)
	clear(p.leases)
}

// Unconfirmed returns how many operations of a verb wait to be sent or to get a reply.
func (p *Peer) Unconfirmed(verb Verb) (n int) {
	count := func(ops []Op) {
		for _, op := range ops {
			if op.Verb == verb {
				n++
			}
		}
	}
	count(p.requests)
	if p.inFlight != nil {
		count(p.inFlight.Ops)
	}
	return n
}

// Charges returns the weight by which settlements that wait to be sent or to get a reply
// exceed what the store has charged. The store may have received those in flight.
func (p *Peer) Charges() (sum int64) {
	add := func(ops []Op) {
		for _, op := range ops {
			if op.Verb == Settle {
				sum += max(0, op.Weight-op.Least)
			}
		}
	}
	add(p.requests)
	if p.inFlight != nil {
		add(p.inFlight.Ops)
	}
	return sum
}

// Due reports whether there is a batch to send: operations, the end of the session or a
// heartbeat are due, or a batch is in flight. A batch in flight has to be sent again if its
// reply was lost.
func (p *Peer) Due(now Micros) bool {
	return !p.ended && (p.inFlight != nil || len(p.requests) > 0 || p.leaving || now >= p.nextSend)
}

// Notify makes the session send a batch at once, because the store may have results. A
// notification during a batch may be about a later change, so another batch follows.
func (p *Peer) Notify(now Micros) {
	p.notified = p.inFlight != nil
	p.nextSend = min(p.nextSend, now)
}

// InFlight reports whether a batch is in flight and may have to be sent again.
func (p *Peer) InFlight() bool { return p.inFlight != nil }

// NextSend returns when to send again even without operations.
func (p *Peer) NextSend() Micros { return p.nextSend }

// Send returns the batch to send now: the batch in flight if its reply was lost, otherwise a
// new one with at most max operations.
func (p *Peer) Send(now Micros, max int) Batch {
	if p.inFlight == nil {
		p.seq++
		n := min(len(p.requests), max)
		p.inFlight = &Batch{
			Session: p.session, Owner: p.owner, Seq: p.seq, Ack: p.ack, Ops: slices.Clone(p.requests[:n]), End: p.leaving && n == 0, Highest: p.highest,
		}
		p.requests = slices.Delete(p.requests, 0, n)
		p.sent = now
	}
	return *p.inFlight
}

// Receive processes the reply to the batch with a seq and returns the new results, in the
// memory of the reply if all of its results are new. It ignores delayed replies to other
// batches.
func (p *Peer) Receive(now Micros, seq uint64, r Reply) []Result {
	if p.inFlight == nil || seq != p.inFlight.Seq || p.Ended(now) {
		return nil
	}
	if r.Status == Unknown || r.Status == Stale {
		p.ended = true
		return nil
	}
	sent := p.inFlight
	p.inFlight = nil
	p.config = r.Config
	if r.Valid >= 0 {
		p.renewed, p.validFor = p.sent, p.config.TTL*2/3
		if r.Valid > 0 {
			p.validFor = min(p.validFor, r.Valid)
		}
	}
	p.nextSend = p.heartbeat()
	switch {
	case r.More || p.notified:
		p.nextSend = now
	case r.Next > 0:
		p.nextSend = min(p.nextSend, now+r.Next)
	}
	p.notified = false
	p.poll(now, r, *sent)
	fresh, all := r.Results, true
	for i, f := range r.Results {
		isNew := f.N > p.ack
		p.ack = max(p.ack, f.N)
		switch {
		case isNew && p.noteResult(f):
			if !all {
				fresh = append(fresh, f)
			}
		case all: // the first one to leave out
			fresh, all = slices.Clone(fresh[:i]), false
		}
	}
	if slices.ContainsFunc(fresh, func(f Result) bool { return f.Kind == Revoked }) {
		p.nextSend = now // the acknowledgement releases the lease
	}
	return fresh
}

// poll schedules the next batch soon if an acquire failed, waits or was cancelled while the
// store could not decide. The semaphore's clock follows the store's by at most a sixth of a
// TTL per call. Without polling it would stand still until the next acquire, which would
// fail as well.
func (p *Peer) poll(now Micros, r Reply, sent Batch) {
	rejected := func(f Result) bool { return f.Kind != Granted && f.Kind != Revoked }
	cancels := func(op Op) bool { return op.Verb == Cancel }
	switch {
	case r.Undecided == 0:
		p.pollUntil = 0
	case !p.Polls(now) && (len(p.waiting) > 0 || slices.ContainsFunc(r.Results, rejected) || slices.ContainsFunc(sent.Ops, cancels)):
		p.pollUntil = now + 2*p.config.TTL
	}
	if p.Polls(now) {
		p.nextSend = min(p.nextSend, now+max(1, min(r.Undecided, p.config.TTL/6)))
	}
}

// noteResult records a result and reports whether the caller still needs it.
func (p *Peer) noteResult(f Result) bool {
	what, wanted := p.waiting[f.Ticket]
	p.highest = max(p.highest, f.Lease)
	switch {
	case f.Kind == Revoked:
		_, held := p.leases[f.Lease]
		delete(p.leases, f.Lease)
		return held
	case !wanted:
		// The acquire was cancelled, but granted before the store received the
		// cancel. Acknowledging the result ends the ticket, so the lease has to be
		// released by its Seq.
		p.requests = slices.DeleteFunc(p.requests, func(w Op) bool { return w.Verb == Cancel && w.Ticket == f.Ticket })
		switch {
		case f.Kind != Granted:
		case p.config.Kind == Rate:
			p.requests = append(p.requests, Op{Verb: Settle, Ticket: f.Ticket, Lease: f.Lease, Least: f.Weight})
		default:
			p.requests = append(p.requests, Op{Verb: Release, Lease: f.Lease})
		}
		return false
	}
	delete(p.waiting, f.Ticket)
	switch {
	case f.Kind == Granted && p.config.Kind == Concurrency:
		p.leases[f.Lease] = f.Weight
	case f.Kind != Granted && what.of != 0:
		if _, held := p.leases[what.of]; held {
			p.leases[what.of] += what.weight
		}
	}
	return true
}
