// Package list provides an intrusive doubly linked list: its elements contain their nodes. So
// an element is removed from the middle in constant time, and nothing is allocated. It is not
// safe for concurrent use.
package list

// A List is doubly linked through nodes that its elements contain. Any element is removed in
// constant time.
type List[E any] struct {
	first, last *Node[E]
	n           int
}

// A Node is the part of an element that links it into a list.
type Node[E any] struct {
	Of         E // the element
	prev, next *Node[E]
	in         bool
}

// First returns the node of the first element, nil if the list is empty.
func (l *List[E]) First() *Node[E] { return l.first }

// Last returns the node of the last element, nil if the list is empty.
func (l *List[E]) Last() *Node[E] { return l.last }

// Next returns the node after n, nil if n is the last.
func (n *Node[E]) Next() *Node[E] { return n.next }

// Len returns the number of elements.
func (l *List[E]) Len() int { return l.n }

// In reports whether the node is in a list.
func (n *Node[E]) In() bool { return n.in }

// PushBack adds a node, which must not be in a list, to the end.
func (l *List[E]) PushBack(n *Node[E]) {
	n.prev, n.in = l.last, true
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
	l.n++
}

// Remove removes a node. It does nothing if the node is in no list.
func (l *List[E]) Remove(n *Node[E]) {
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

// All yields the elements in order. The current element may be removed.
func (l *List[E]) All(yield func(E) bool) {
	for n := l.first; n != nil; {
		next := n.next
		if !yield(n.Of) {
			return
		}
		n = next
	}
}
