package sema

// wakes collects the decisions of a critical section that are delivered after it:
// waiters with their final statuses, linked through next, and rare cases.
type wakes struct {
	head, tail *waiter
	rare       *rareWakes
}

// rareWakes are tickets, linked like waiters, and joint waiters to attempt. Only a
// LIFO queue yields more than one joint waiter.
type rareWakes struct {
	tickets *waiter
	joints  []*joint
}

func (o *wakes) add(w *waiter) {
	if w.ticket != nil {
		rare := o.ensureRare()
		w.next = rare.tickets
		rare.tickets = w
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

func (o *wakes) ensureRare() *rareWakes {
	if o.rare == nil {
		o.rare = new(rareWakes)
	}
	return o.rare
}

// deliver sends the statuses. A waiter may be reused as soon as it receives its
// token, so its next is read before the send.
func (o *wakes) deliver() {
	for w := o.head; w != nil; {
		next := w.next
		if w.joint != nil {
			w.joint.token <- w.status
		} else {
			w.token <- w.status
		}
		w = next
	}
	if o.rare != nil {
		o.rare.deliver()
	}
}

// deliver attempts joint waiters and then resolves tickets. It continues if one
// panics. Observers of a ticket run in this goroutine; whatever they do, all other
// tickets and waiters are notified.
func (o *rareWakes) deliver() {
	if o.tickets != nil {
		defer resolveTickets(o.tickets)
	}
	attemptAll(o.joints)
}

func resolveTickets(w *waiter) {
	if w.next != nil {
		defer resolveTickets(w.next)
	}
	w.ticket.resolve(w.status)
}

func attemptAll(joints []*joint) {
	if len(joints) > 0 {
		defer attemptAll(joints[1:])
		joints[0].attempt()
	}
}

// deliverAll delivers the decisions of several cores.
func deliverAll(outs []wakes) {
	if len(outs) > 0 {
		defer deliverAll(outs[1:])
		outs[0].deliver()
	}
}
