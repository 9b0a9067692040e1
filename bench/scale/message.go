package main

import "github.com/sema-go/sema/fleet/protocol"

// A message is a batch, or a request to open a session, together with its
// reply. Messages are reused.
type message struct {
	link       int32
	generation uint32 // of the link when the message was created
	next       int32  // in the list of unused messages
	open       bool
	sent       protocol.Micros
	session    protocol.Session
	batch      protocol.Batch
	reply      protocol.Reply
}

// newMessage returns the index of an unused message.
func (w *world) newMessage(id int32) int32 {
	i := w.freeMessage
	if i < 0 {
		i = int32(len(w.messages))
		w.messages = append(w.messages, message{})
	} else {
		w.freeMessage = w.messages[i].next
	}
	w.messages[i] = message{link: id, generation: w.links[id].generation, sent: w.now}
	return i
}

func (w *world) discard(i int32) {
	w.messages[i] = message{next: w.freeMessage}
	w.freeMessage = i
}

// transmit sends a message in either direction.
func (w *world) transmit(l *link, kind kind, i int32) {
	if l.cut {
		w.discard(i)
		return
	}
	w.schedule(event{at: w.now + w.delay(l), kind: kind, index: i})
}

// delay returns the latency of a message: half a round trip on average, never
// less than nine tenths of that, occasionally much more.
func (w *world) delay(l *link) protocol.Micros {
	return protocol.Micros(float64(l.rtt) / 2 * (0.9 + 0.1*w.rng.ExpFloat64()))
}

// requestArrived handles the arrival of a message at the store. That may create
// other messages and so move this one in memory.
func (w *world) requestArrived(i int32) {
	msg := w.messages[i]
	l := &w.links[msg.link]
	if msg.open {
		msg.session, msg.reply.Config = l.store.open(msg.link, msg.generation)
	} else {
		msg.reply = l.store.apply(l, msg.batch)
	}
	w.messages[i] = msg
	w.transmit(l, replyArrives, i)
}

// replyArrived handles the arrival of a reply.
func (w *world) replyArrived(i int32) {
	msg := w.messages[i]
	w.discard(i)
	l := &w.links[msg.link]
	switch {
	case l.down || msg.generation != l.generation: // the session that sent it has ended
	case msg.open && l.peer == nil:
		l.peer = protocol.NewPeer(msg.sent, msg.session, msg.reply.Config, protocol.Opener{})
		l.owner.review()
		w.flush(msg.link)
	case !msg.open:
		results := l.peer.Receive(w.now, msg.batch.Seq, msg.reply)
		if l.peer.Ended(w.now) {
			w.ended(msg.link)
			return
		}
		w.receive(l, msg.reply, results)
		w.flush(msg.link)
	}
}
