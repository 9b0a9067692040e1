// Package list is a doubly linked list whose nodes are parts of its elements,
// so that an element leaves from the middle as easily as from the front, and
// nothing is allocated. It is not safe for concurrent use.
package list

// A List is doubly linked through nodes that its elements contain, so that one
// in the middle leaves as easily as the first.
type List[E any] struct {
	first, last *Node[E]
	n           int
}

// A Node is the part of an element by which it is in a list.
type Node[E any] struct {
	Of         E // the element
	prev, next *Node[E]
	in         bool
}

// First is the node of the first element, nil if there is none.
func (l *List[E]) First() *Node[E] { return l.first }

// Next is the node after this one, nil for the last.
func (n *Node[E]) Next() *Node[E] { return n.next }

// Len is how many elements there are.
func (l *List[E]) Len() int { return l.n }

// In reports whether the node is in a list.
func (n *Node[E]) In() bool { return n.in }

// PushBack puts a node, which is in no list, at the end.
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

// Remove does nothing for a node that is in no list.
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

// All yields the elements in order. The one that is yielded may be removed.
func (l *List[E]) All(yield func(E) bool) {
	for n := l.first; n != nil; {
		next := n.next
		if !yield(n.Of) {
			return
		}
		n = next
	}
}
