package sema

// wakes is what a critical section decided and has yet to tell: waiters with
// their verdicts, linked through next, tickets likewise, and joint waiters
// worth an attempt.
type wakes struct {
	head, tail *waiter
	tickets    *waiter
	joints     []*joint // several only in a LIFO line
}

func (o *wakes) add(w *waiter) {
	if w.ticket != nil {
		w.next = o.tickets
		o.tickets = w
		return
	}
	w.next = nil
	if o.tail != nil {
		o.tail.next = w
	} else {
		o.head = w
	}
	o.tail = w
}

// deliver tells them. A waiter may be reused the moment it has its token, so
// its next is read before. Tickets come last: they are told to observers in
// this goroutine, and whatever those do, everybody else has been told.
func (o *wakes) deliver() {
	for w := o.head; w != nil; {
		next := w.next
		if w.joint != nil {
			w.joint.token <- w.verdict
		} else {
			w.token <- w.verdict
		}
		w = next
	}
	if o.tickets != nil {
		defer resolveTickets(o.tickets)
	}
	attemptAll(o.joints)
}

func attemptAll(joints []*joint) {
	if len(joints) > 0 {
		defer attemptAll(joints[1:])
		joints[0].attempt()
	}
}

func resolveTickets(w *waiter) {
	if w.next != nil {
		defer resolveTickets(w.next)
	}
	w.ticket.resolve(w.verdict)
}

// deliverAll delivers what several cores decided.
func deliverAll(outs []wakes) {
	if len(outs) > 1 {
		defer deliverAll(outs[1:])
	}
	if len(outs) > 0 {
		outs[0].deliver()
	}
}
