package protocol

// A list is doubly linked through nodes that its elements contain, so that one
// in the middle leaves as easily as the first.
type list[E any] struct {
	first, last *node[E]
	n           int
}

type node[E any] struct {
	of         E
	prev, next *node[E]
	in         bool
}

func (l *list[E]) pushBack(n *node[E]) {
	n.prev, n.in = l.last, true
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
	l.n++
}

// remove does nothing for a node that is in no list.
func (l *list[E]) remove(n *node[E]) {
	if !n.in {
		return
	}
	if n.prev == nil {
		l.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next, n.in = nil, nil, false
	l.n--
}

// all yields the elements in order. The one that is yielded may be removed.
func (l *list[E]) all(yield func(E) bool) {
	for n := l.first; n != nil; {
		next := n.next
		if !yield(n.of) {
			return
		}
		n = next
	}
}
