package main

import "github.com/sema-go/sema/fleet/protocol"

// A link is one side of a session with a store: of an instance with its
// region's store, or of a region with the global one. Its requests and replies
// go through the real [protocol.Peer]. The network between them has latency,
// and loses everything while the link is cut.
type link struct {
	store      *store
	owner      owner
	peer       *protocol.Peer // nil while there is no session
	generation uint32         // number of sessions and crashes
	rtt        protocol.Micros
	cut        bool
	down       bool // the process is not running

	timer   protocol.Micros // when the timer fires; 0: never
	retryAt protocol.Micros // when the batch in flight counts as lost

	ticket  protocol.Ticket
	pending bool            // the ticket is undecided
	waits   bool            // the reply to the ticket's own batch did not grant it
	since   protocol.Micros // when the store received the ticket; 0: not yet

	recalled protocol.Micros // since when the store reports that others wait; 0: it does not
	share    int64           // what a region may keep nevertheless
	spare    int64           // what the store had free at its last reply
	lent     int64           // what the store had in use at its last reply
}

// An owner is an instance or a region.
type owner interface {
	review()                   // called after a change
	granted([]protocol.Result) // called with results, some of which may be new blocks
	heartbeat()                // called when a heartbeat is due
	sessionLost()              // called when the session has ended
}

// receive processes a reply.
func (w *world) receive(l *link, r protocol.Reply, results []protocol.Result) {
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
		l.pending = false
		if f.Kind == protocol.Granted && l.waits {
			l.store.delays.add(w.now - l.since)
		}
	}
	l.waits = l.pending && l.since > 0
	l.owner.granted(results)
	l.owner.review()
}

// acquire queues a ticket.
func (l *link) acquire(want int64) {
	l.ticket++
	l.pending, l.waits, l.since = true, false, 0
	l.peer.Request(protocol.Op{Verb: protocol.Acquire, Ticket: l.ticket, Weight: want, Least: 1, Pooled: true})
}

// flush sends a batch if one is due, and sets the timer for the next one.
func (w *world) flush(id int32) {
	l := &w.links[id]
	if l.peer == nil {
		return
	}
	if !l.peer.InFlight() && l.peer.Due(w.now) {
		w.send(id)
	}
	next := l.peer.NextSend()
	if l.peer.InFlight() {
		next = l.retryAt
	}
	w.setTimer(id, min(next, l.peer.Deadline()))
}

// setTimer makes the link's timer fire at a time, unless it fires earlier.
func (w *world) setTimer(id int32, at protocol.Micros) {
	l := &w.links[id]
	if l.timer > 0 && l.timer <= at {
		return
	}
	l.timer = at
	w.schedule(event{at: at, kind: timerFires, index: id, generation: l.generation})
}

// timerFired handles the link's timer: the session may have ended, a heartbeat
// may be due, or a reply may be overdue.
func (w *world) timerFired(e event) {
	l := &w.links[e.index]
	if e.generation != l.generation || e.at != l.timer || l.down {
		return
	}
	l.timer = 0
	switch {
	case l.peer == nil:
		w.open(e.index)
		return
	case l.peer.Ended(w.now):
		w.ended(e.index)
		return
	case l.peer.InFlight() && w.now >= l.retryAt:
		w.send(e.index)
	case !l.peer.InFlight() && l.peer.Due(w.now):
		l.owner.heartbeat()
	}
	w.flush(e.index)
}

// notify handles a notification of the store.
func (w *world) notify(e event) {
	l := &w.links[e.index]
	if l.peer != nil && e.generation == l.generation && !l.down {
		l.peer.Notify(w.now)
		w.flush(e.index)
	}
}

// open starts a session.
func (w *world) open(id int32) {
	l := &w.links[id]
	l.generation++
	l.peer, l.pending, l.recalled, l.timer = nil, false, 0, 0
	i := w.newMessage(id)
	w.messages[i].open = true
	w.transmit(l, requestArrives, i)
	w.setTimer(id, w.now+w.p.ttl/3)
}

// ended handles the end of a session and opens another one.
func (w *world) ended(id int32) {
	w.links[id].owner.sessionLost()
	w.m.ended++
	w.open(id)
}

// send resends the batch in flight, or sends a new one. Like package fleet, it
// waits for a reply for a third of the remaining time.
func (w *world) send(id int32) {
	l := &w.links[id]
	i := w.newMessage(id)
	w.messages[i].batch = l.peer.Send(w.now, maxOps)
	l.retryAt = w.now + max((l.peer.Deadline()-w.now)/3, w.p.ttl/18)
	w.transmit(l, requestArrives, i)
}

// maxOps is the maximum number of operations of a batch, as in package fleet.
const maxOps = 512
