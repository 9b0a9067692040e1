package protocol

import "slices"

// A Peer is the client's side of one session: what it has asked, what it holds
// and until when, and which batch is on its way. Like [State] it is pure: times
// are on the client's own clock, which must go on while the machine sleeps and
// never step back. It is not safe for concurrent use.
type Peer struct {
	session Session
	owner   Owner
	highest Seq // that was seen, also in earlier sessions
	config  Config
	seq     uint64
	ack     uint64
	wishes  []Op
	waiting map[Ticket]asked // neither decided nor taken back
	leases  map[Seq]int64    // weights held

	flight  *Batch
	sent    Micros // when flight was sent first
	renewed Micros // when the last batch that was answered was sent first
	trust   Micros // for how long from then the leases are surely held
	speak   Micros // when to send again, though there is nothing to wish
	hinted  bool   // there was a hint since flight was sent
	polls   Micros // until then it asks every sixth of a TTL whether the store can decide; 0: it does not
	leaving bool
	ended   bool
}

// asked is what a ticket is for.
type asked struct {
	weight int64
	of     Seq // the lease it splits, if so
}

// NewPeer returns the client's side of a session that was opened by a request sent
// at that time.
func NewPeer(sent Micros, session Session, c Config, by Opener) *Peer {
	p := &Peer{
		session: session, owner: by.Owner, highest: by.Highest, config: c, sent: sent, renewed: sent, trust: c.TTL * 2 / 3,
		waiting: map[Ticket]asked{}, leases: map[Seq]int64{},
	}
	p.speak = p.heartbeat()
	return p
}

// heartbeat is when a sign of life is due after the last batch: in time for
// another one should it be lost, and a little earlier or later than others'.
func (p *Peer) heartbeat() Micros {
	in := min(p.config.TTL/3, max(p.trust/2, p.config.TTL/64)) // not ever more often as trust runs out
	const golden = 0x9e3779b97f4a7c15
	scatter := (uint64(p.session)*31 + p.seq) * golden >> 32
	return p.sent + in - Micros(scatter%uint64(in/8+1))
}

// Deadline is until when this session's leases are surely its own: two thirds
// of a TTL after the first send of the last batch that was answered. Counted
// from a later send it would outlast the engine's, if that heard the first one.
// It is earlier if the engine said so.
func (p *Peer) Deadline() Micros { return p.renewed + p.trust }

// Ended reports whether the session is over: the engine said so, or the
// deadline has passed. It stays over, whatever is heard later: the engine may
// have given the permits to others in between.
func (p *Peer) Ended(now Micros) bool {
	p.ended = p.ended || now >= p.Deadline()
	return p.ended
}

// Holds reports whether a lease is this session's now.
func (p *Peer) Holds(now Micros, lease Seq) bool {
	_, held := p.leases[lease]
	return held && !p.Ended(now)
}

// Idle reports whether the session has nothing, wants nothing and says nothing.
func (p *Peer) Idle() bool {
	return len(p.leases) == 0 && len(p.waiting) == 0 && len(p.wishes) == 0 && p.flight == nil && !p.leaving
}

// Promise is the seq of the batch with which all that was wished so far will
// have been said, if a batch carries at most max wishes.
func (p *Peer) Promise(max int) uint64 { return p.seq + uint64((len(p.wishes)+max-1)/max) }

// Replied returns the seq of the last batch that got a reply.
func (p *Peer) Replied() uint64 {
	if p.flight != nil {
		return p.seq - 1
	}
	return p.seq
}

// Highest returns the highest Seq that was seen of this semaphore.
func (p *Peer) Highest() Seq { return p.highest }

// Polls reports whether the session asks until the store can decide what it could
// not when an acquire failed. It does so for at most two TTLs.
func (p *Peer) Polls(now Micros) bool { return now < p.polls }

// Config is the semaphore's, as last heard.
func (p *Peer) Config() Config { return p.config }

// Wish adds to the next batch.
func (p *Peer) Wish(op Op) {
	switch op.Verb {
	case Acquire:
		p.waiting[op.Ticket] = asked{weight: op.Weight}
	case Split:
		p.waiting[op.Ticket] = asked{op.Weight, op.Lease}
		if _, held := p.leases[op.Lease]; held { // or it was revoked, and the engine will say so
			p.leases[op.Lease] -= op.Weight
		}
	case Cancel:
		delete(p.waiting, op.Ticket)
		unsent := func(w Op) bool { return w.Verb == Acquire && w.Ticket == op.Ticket }
		if slices.ContainsFunc(p.wishes, unsent) {
			p.wishes = slices.DeleteFunc(p.wishes, unsent)
			return
		}
	case Release:
		if op.Weight == 0 || op.Weight >= p.leases[op.Lease] {
			delete(p.leases, op.Lease)
		} else {
			p.leases[op.Lease] -= op.Weight
		}
	}
	p.wishes = append(p.wishes, op)
}

// Leave ends the session: the next batch says so, and all that it has is free
// when that is heard.
func (p *Peer) Leave() {
	p.leaving = true
	p.wishes = nil
	clear(p.waiting)
	clear(p.leases)
}

// Unheard is how many wishes of a kind the engine is not known to have heard.
func (p *Peer) Unheard(verb Verb) (n int) {
	count := func(ops []Op) {
		for _, op := range ops {
			if op.Verb == verb {
				n++
			}
		}
	}
	count(p.wishes)
	if p.flight != nil {
		count(p.flight.Ops)
	}
	return n
}

// Due reports whether there is a new batch to send: none is on its way, and
// there is something to say or it is time for a sign of life.
func (p *Peer) Due(now Micros) bool {
	return p.flight == nil && !p.ended && (len(p.wishes) > 0 || p.leaving || now >= p.speak)
}

// Hint says that the engine may have news. One that comes while a batch is on
// its way may be about what came after it.
func (p *Peer) Hint(now Micros) {
	p.hinted = p.flight != nil
	p.speak = min(p.speak, now)
}

// Flying reports whether a batch is on its way, and may have to be sent again.
func (p *Peer) Flying() bool { return p.flight != nil }

// Speak is when a sign of life is due.
func (p *Peer) Speak() Micros { return p.speak }

// Send is the batch to send now: the one that is on its way, if its answer was
// lost, or else a new one of at most max wishes.
func (p *Peer) Send(now Micros, max int) Batch {
	if p.flight == nil {
		p.seq++
		n := min(len(p.wishes), max)
		p.flight = &Batch{
			Session: p.session, Owner: p.owner, Seq: p.seq, Ack: p.ack, Ops: slices.Clone(p.wishes[:n]), End: p.leaving, Highest: p.highest,
		}
		p.wishes = slices.Delete(p.wishes, 0, n)
		p.sent = now
	}
	return *p.flight
}

// Hear takes the answer to the batch with a seq, and returns the results that are
// new. Answers to others, which were delayed, say nothing.
func (p *Peer) Hear(now Micros, seq uint64, r Reply) []Result {
	if p.flight == nil || seq != p.flight.Seq || p.Ended(now) {
		return nil
	}
	if r.Status == Unknown || r.Status == Stale {
		p.ended = true
		return nil
	}
	sent := p.flight
	p.flight = nil
	p.config = r.Config
	if r.Valid >= 0 {
		p.renewed, p.trust = p.sent, p.config.TTL*2/3
		if r.Valid > 0 {
			p.trust = min(p.trust, r.Valid)
		}
	}
	p.speak = p.heartbeat()
	switch {
	case r.More || p.hinted:
		p.speak = now
	case r.Next > 0:
		p.speak = min(p.speak, now+r.Next)
	}
	p.hinted = false
	p.poll(now, r, *sent)
	var news []Result
	for _, f := range r.Results {
		if f.N <= p.ack {
			continue
		}
		p.ack = f.N
		if p.take(f) {
			news = append(news, f)
		}
	}
	if len(news) > 0 && p.hasRevoked(news) {
		p.speak = now // to acknowledge is to give up
	}
	return news
}

// poll makes the session ask again soon where an acquire failed, waits or was
// cancelled while the store could not decide. Without it the semaphore's clock, which
// follows the store's by a sixth of a TTL a call, would stand still until the next
// acquire, and that would fail as well.
func (p *Peer) poll(now Micros, r Reply, sent Batch) {
	rejected := func(f Result) bool { return f.Kind != Granted && f.Kind != Revoked }
	cancels := func(op Op) bool { return op.Verb == Cancel }
	switch {
	case r.Undecided == 0:
		p.polls = 0
	case !p.Polls(now) && (len(p.waiting) > 0 || slices.ContainsFunc(r.Results, rejected) || slices.ContainsFunc(sent.Ops, cancels)):
		p.polls = now + 2*p.config.TTL
	}
	if p.Polls(now) {
		p.speak = min(p.speak, now+max(1, min(r.Undecided, p.config.TTL/6)))
	}
}

// take notes a result, and reports whether anybody is still interested in it.
func (p *Peer) take(f Result) bool {
	what, wanted := p.waiting[f.Ticket]
	p.highest = max(p.highest, f.Lease)
	switch {
	case f.Kind == Revoked:
		_, held := p.leases[f.Lease]
		delete(p.leases, f.Lease)
		return held
	case !wanted:
		// Taken back, but granted before that was heard. Acknowledging the result
		// ends it, so the lease has to be given back by its own name.
		p.wishes = slices.DeleteFunc(p.wishes, func(w Op) bool { return w.Verb == Cancel && w.Ticket == f.Ticket })
		if f.Kind == Granted {
			p.wishes = append(p.wishes, Op{Verb: Release, Lease: f.Lease})
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

func (p *Peer) hasRevoked(results []Result) bool {
	return slices.ContainsFunc(results, func(f Result) bool { return f.Kind == Revoked })
}
