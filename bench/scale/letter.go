package main

import "github.com/sema-go/sema/fleet/protocol"

// A letter is a batch, or the wish to open a session, and its answer. Letters
// are used again when they were read.
type letter struct {
	link    int32
	life    uint32 // of the link when it was written
	next    int32  // of those that are not in use
	open    bool
	sent    protocol.Micros
	session protocol.Session
	batch   protocol.Batch
	reply   protocol.Reply
}

// write takes a letter from the pile.
func (w *world) write(id int32) int32 {
	i := w.blank
	if i < 0 {
		i = int32(len(w.letters))
		w.letters = append(w.letters, letter{})
	} else {
		w.blank = w.letters[i].next
	}
	w.letters[i] = letter{link: id, life: w.links[id].life, sent: w.now}
	return i
}

func (w *world) discard(i int32) {
	w.letters[i] = letter{next: w.blank}
	w.blank = i
}

// post sends a letter on its way, there or back.
func (w *world) post(l *link, kind kind, i int32) {
	if l.cut {
		w.discard(i)
		return
	}
	w.file(event{at: w.now + w.delay(l), kind: kind, who: i})
}

// delay is how long a message takes: half a round trip on average, never less
// than nine tenths of that, now and then much more.
func (w *world) delay(l *link) protocol.Micros {
	return protocol.Micros(float64(l.rtt) / 2 * (0.9 + 0.1*w.rng.ExpFloat64()))
}

// deliver is when a letter is at the engine. What it does there may cause other
// letters, so that it may be elsewhere in memory afterwards.
func (w *world) deliver(i int32) {
	mail := w.letters[i]
	l := &w.links[mail.link]
	if mail.open {
		mail.session, mail.reply.Config = l.engine.open(mail.link, mail.life)
	} else {
		mail.reply = l.engine.apply(l, mail.batch)
	}
	w.letters[i] = mail
	w.post(l, answered, i)
}

// answer is when its answer is back.
func (w *world) answer(i int32) {
	mail := w.letters[i]
	w.discard(i)
	l := &w.links[mail.link]
	switch {
	case l.down || mail.life != l.life: // nobody is there who asked
	case mail.open && l.peer == nil:
		l.peer = protocol.NewPeer(mail.sent, mail.session, mail.reply.Config, protocol.Opener{})
		l.owner.review()
		w.flush(mail.link)
	case !mail.open:
		results := l.peer.Hear(w.now, mail.batch.Seq, mail.reply)
		if l.peer.Ended(w.now) {
			w.ended(mail.link)
			return
		}
		w.hear(l, mail.reply, results)
		w.flush(mail.link)
	}
}
