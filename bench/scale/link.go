package main

import "github.com/sema-go/sema/fleet/protocol"

// A link is one side's session with an engine: an instance's with its region's,
// or a region's with the global one. What it says and hears goes through the
// real [protocol.Peer]; between them is a network that takes time, and loses
// everything while the link is cut.
type link struct {
	engine *engine
	owner  owner
	peer   *protocol.Peer // nil while there is no session
	life   uint32         // counts sessions and crashes
	rtt    protocol.Micros
	cut    bool
	down   bool // the process is not there

	timer protocol.Micros // when the link will look at the clock; 0: never
	again protocol.Micros // when what is on its way counts as lost

	ticket protocol.Ticket
	asking bool            // the ticket is undecided
	waits  bool            // it was not granted by the answer to its own batch
	since  protocol.Micros // when the engine heard of it; 0: not yet

	recalled protocol.Micros // since when the engine says that others wait; 0: it does not
	share    int64           // which may be kept all the same, by who serves others
	spare    int64           // what the engine had free when it last answered
	lent     int64           // and what it had lent
}

// An owner is whose link it is.
type owner interface {
	review()                   // something has changed
	granted([]protocol.Result) // some of them are new blocks
	heartbeat()                // a sign of life is due
	lose()                     // the session is over
}

// hear takes an answer.
func (w *world) hear(l *link, r protocol.Reply, results []protocol.Result) {
	switch {
	case !r.Recall:
		l.recalled = 0
	case l.recalled == 0:
		l.recalled = w.now
	}
	l.share, l.lent, l.spare = r.Share, r.InUse, max(0, r.Config.Capacity-r.InUse)
	for _, f := range results {
		if f.Ticket != l.ticket {
			continue
		}
		l.asking = false
		if f.Kind == protocol.Granted && l.waits {
			l.engine.delays.add(w.now - l.since)
		}
	}
	l.waits = l.asking && l.since > 0
	l.owner.granted(results)
	l.owner.review()
}

// ask has a ticket stand in line.
func (l *link) ask(want int64) {
	l.ticket++
	l.asking, l.waits, l.since = true, false, 0
	l.peer.Wish(protocol.Op{Verb: protocol.Acquire, Ticket: l.ticket, Weight: want, Least: 1, Pooled: true})
}

// flush says what there is to say, and sees to it that somebody looks when there
// will be something.
func (w *world) flush(id int32) {
	l := &w.links[id]
	if l.peer == nil {
		return
	}
	if l.peer.Due(w.now) {
		w.send(id)
	}
	next := l.peer.Speak()
	if l.peer.Flying() {
		next = l.again
	}
	w.watch(id, min(next, l.peer.Deadline()))
}

// watch has the link look at the clock at some time, or earlier.
func (w *world) watch(id int32, at protocol.Micros) {
	l := &w.links[id]
	if l.timer > 0 && l.timer <= at {
		return
	}
	l.timer = at
	w.file(event{at: at, kind: looks, who: id, life: l.life})
}

// look is the link's timer: the session may be over, a sign of life may be due,
// or an answer overdue.
func (w *world) look(e event) {
	l := &w.links[e.who]
	if e.life != l.life || e.at != l.timer || l.down {
		return
	}
	l.timer = 0
	switch {
	case l.peer == nil:
		w.open(e.who)
		return
	case l.peer.Ended(w.now):
		w.ended(e.who)
		return
	case l.peer.Flying() && w.now >= l.again:
		w.send(e.who)
	case l.peer.Due(w.now):
		l.owner.heartbeat()
	}
	w.flush(e.who)
}

// hint is news from the engine.
func (w *world) hint(e event) {
	l := &w.links[e.who]
	if l.peer != nil && e.life == l.life && !l.down {
		l.peer.Hint(w.now)
		w.flush(e.who)
	}
}

// open begins a session.
func (w *world) open(id int32) {
	l := &w.links[id]
	l.life++
	l.peer, l.asking, l.recalled, l.timer = nil, false, 0, 0
	i := w.write(id)
	w.letters[i].open = true
	w.post(l, delivered, i)
	w.watch(id, w.now+w.p.ttl/3)
}

// ended is when a session is over; another one is opened.
func (w *world) ended(id int32) {
	w.links[id].owner.lose()
	w.m.ended++
	w.open(id)
}

// send sends the batch that is on its way once more, or else a new one. Like
// package fleet it allows an answer a third of the time that is left.
func (w *world) send(id int32) {
	l := &w.links[id]
	i := w.write(id)
	w.letters[i].batch = l.peer.Send(w.now, maxOps)
	l.again = w.now + max((l.peer.Deadline()-w.now)/3, w.p.ttl/18)
	w.post(l, delivered, i)
}

// maxOps is how many wishes a batch carries, as in package fleet.
const maxOps = 512
