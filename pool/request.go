package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/sema-go/sema/internal/list"
)

// A request is a caller that holds a permit and waits for an item. Whatever item is
// available first, opened, checked or released by another caller, goes to the request that
// came first. So a request that ends early leaves nothing behind but an item for another
// one.
//
// Each request has an Open or a Check in progress, unless Size or MaxOpening forbid it. It
// does not rely on those that ended requests have left: a server that has hung may be
// available again.
type request[T any] struct {
	node     list.Node[*request[T]]
	work     *work[T]        // nil: nothing is in progress for it
	ctx      context.Context // for Open and Check
	ended    chan struct{}   // buffered; receives once one of the following is set
	slot     *slot[T]
	err      error
	panicked *panicError
}

// work is a call of Open or Check.
type work[T any] struct {
	request  *request[T] // for which it runs; nil: none, or none any more. Pool.mu guards it
	ctx      context.Context
	returned bool
	err      error
	panicked *panicError
}

// requests is a queue of requests, in order of arrival. Pool.mu guards it.
type requests[T any] struct {
	list.List[*request[T]]
	working int // requests with work
}

func (q *requests[T]) push(r *request[T]) {
	r.node.Of = r
	q.PushBack(&r.node)
}

// remove removes a request. Its work continues, for none.
func (q *requests[T]) remove(r *request[T]) {
	if r.work != nil {
		q.drop(r.work)
	}
	q.Remove(&r.node)
}

// first returns the request that came first, or nil.
func (q *requests[T]) first() *request[T] {
	if node := q.First(); node != nil {
		return node.Of
	}
	return nil
}

// finish removes a request and ends its wait. The caller has set the result.
func (q *requests[T]) finish(r *request[T]) {
	q.remove(r)
	r.ended <- struct{}{}
}

// give gives an item to the first request, and reports whether there is one. If the item
// is the result of w, the request for which w ran gets the work of the first in exchange.
func (q *requests[T]) give(s *slot[T], w *work[T]) bool {
	r := q.first()
	if r == nil {
		return false
	}
	if w != nil && w.request != nil && w.request != r {
		owner, other := w.request, r.work
		q.drop(w)
		if other != nil {
			q.drop(other)
			q.assign(owner, other)
		}
	}
	r.slot = s
	q.finish(r)
	return true
}

// newWork returns work for the first request that has none. There must be one.
func (q *requests[T]) newWork() *work[T] {
	node := q.First()
	for node.Of.work != nil {
		node = node.Next()
	}
	w := &work[T]{ctx: node.Of.ctx}
	q.assign(node.Of, w)
	return w
}

func (q *requests[T]) assign(r *request[T], w *work[T]) {
	r.work, w.request = w, r
	q.working++
}

// drop ends the relation of work to its request, if it has one.
func (q *requests[T]) drop(w *work[T]) {
	if r := w.request; r != nil {
		r.work, w.request = nil, nil
		q.working--
	}
}

var errGoexit = errors.New("the function ended its goroutine")

// end gets the result of recover, after the function returned, panicked or ended its
// goroutine.
func (w *work[T]) end(reason any) {
	if w.returned {
		return
	}
	w.err = errGoexit
	if reason != nil {
		w.panicked = &panicError{reason, debug.Stack()}
	}
}

// rethrow continues a panic that was not passed to a request.
func (w *work[T]) rethrow(passed bool) {
	if w.panicked != nil && !passed {
		panic(w.panicked)
	}
}

// A panicError is the value of a panic that continues in another goroutine.
type panicError struct {
	value any
	stack []byte
}

// Error returns the value of the panic and the stack of the function that panicked.
func (e *panicError) Error() string {
	return fmt.Sprintf("%v\n\nin a goroutine of package pool:\n%s", e.value, e.stack)
}

// Unwrap returns the value of the panic if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
