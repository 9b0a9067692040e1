package pool

// availableLocked gives an item that was opened, checked or released to the first
// request, or puts it on the stack as idle. It returns false for an item that is not to be
// lent again: the caller must close it after it has unlocked mu. w is the work whose
// result the item is, or nil.
func (p *Pool[T]) availableLocked(s *slot[T], w *work[T]) bool {
	surplus := p.counts.open-p.counts.closing > p.size && p.requests.Len() == 0
	expired := s.expires.Load() <= p.now.Load()
	if p.closed || surplus || expired {
		if expired && !p.closed {
			p.counts.Expired++
		}
		p.counts.closing++
		if w != nil {
			p.requests.drop(w)
		}
		p.serveLocked()
		return false
	}
	if !p.requests.give(s, w) {
		s.since = p.now.Load()
		p.pushLocked(s)
	}
	p.serveLocked() // another Open may start in place of the one that has ended
	return true
}

// returned handles an item that was discarded, or that push rejected.
func (p *Pool[T]) returned(s *slot[T], broken bool) {
	p.lock()
	retire := true
	if broken {
		p.counts.Discards++
		p.counts.closing++
		p.serveLocked()
	} else {
		retire = !p.availableLocked(s, nil)
	}
	p.unlock()
	if retire {
		p.closeSlot(s)
	}
}

// closeSlot closes an item that was counted as closing, and frees its slot. If Close
// panics, the slot is free nevertheless.
func (p *Pool[T]) closeSlot(s *slot[T]) {
	defer func() {
		p.lock()
		p.counts.closing--
		p.counts.Closes++
		p.freeLocked(s)
		p.serveLocked()
		p.unlock()
	}()
	if p.conf.Close != nil {
		p.conf.Close(*s.box.Load())
	}
}

// closeAll closes items. If Close panics for one of them, the others are closed
// nevertheless.
func (p *Pool[T]) closeAll(slots []*slot[T]) {
	for _, s := range slots {
		defer p.closeSlot(s)
	}
}
