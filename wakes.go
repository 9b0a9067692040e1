package sema

// wakes is what a critical section decided and has yet to deliver: waiters with
// their statuses, linked through next, and seldom something else.
type wakes struct {
	head, tail *waiter
	rare       *rareWakes
}

// rareWakes are tickets, linked like waiters, and joint waiters worth an
// attempt, of which there are several only in a LIFO queue.
type rareWakes struct {
	tickets *waiter
	joints  []*joint
}

func (o *wakes) add(w *waiter) {
	if w.ticket != nil {
		rare := o.others()
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

func (o *wakes) others() *rareWakes {
	if o.rare == nil {
		o.rare = new(rareWakes)
	}
	return o.rare
}

// deliver notifies them. A waiter may be reused the moment it has its token, so
// its next is read before.
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

// deliver notifies tickets last, and goes on should one panic: their observers
// are called in this goroutine, and whatever those do, all others are notified.
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

// deliverAll delivers what several cores decided.
func deliverAll(outs []wakes) {
	if len(outs) > 0 {
		defer deliverAll(outs[1:])
		outs[0].deliver()
	}
}
