package admit

import (
	"net/http"
	"sync"
	"time"
)

// A bound limits how long one read and one write on the connection of a request may take. It
// sets a deadline before each, and restores the one of the server or of the handler after
// it: a deadline that stayed would end a handler that only computes for long, since HTTP/2
// resets a stream when the deadline passes, and HTTP/1 sends the last part of a response
// after the handler has returned. The nil bound limits nothing.
type bound struct {
	control *http.ResponseController
	limit   time.Duration

	mu         sync.Mutex // guards what follows; a body may be read while the response is written
	left       bool       // the connection is that of the server again, or of a new owner
	readUntil  time.Time  // the deadline without the bound; zero: none
	writeUntil time.Time
}

// newBound returns the bound for a request. The timeouts of its server apply as well. They
// count from about now.
func newBound(w http.ResponseWriter, r *http.Request, limit time.Duration) *bound {
	b := &bound{control: http.NewResponseController(w), limit: limit}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		now := time.Now()
		if s.ReadTimeout > 0 {
			b.readUntil = now.Add(s.ReadTimeout)
		}
		if s.WriteTimeout > 0 {
			b.writeUntil = now.Add(s.WriteTimeout)
		}
	}
	return b
}

// read calls fn, which reads once.
func (b *bound) read(fn func()) {
	b.locked(func() { b.control.SetReadDeadline(b.next(b.readUntil)) })
	fn()
	b.locked(func() { b.control.SetReadDeadline(b.readUntil) })
}

// write calls fn, which writes once.
func (b *bound) write(fn func()) {
	b.locked(func() { b.control.SetWriteDeadline(b.next(b.writeUntil)) })
	fn()
	b.locked(func() { b.control.SetWriteDeadline(b.writeUntil) })
}

// setRead notes the read deadline of the handler.
func (b *bound) setRead(at time.Time) { b.locked(func() { b.readUntil = at }) }

// setWrite notes the write deadline of the handler.
func (b *bound) setWrite(at time.Time) { b.locked(func() { b.writeUntil = at }) }

// end bounds what the server has yet to write, and leaves. The server resets the deadlines
// of a connection before the next request.
func (b *bound) end() {
	b.locked(func() {
		b.control.SetWriteDeadline(b.next(b.writeUntil))
		b.left = true
	})
}

// leave sets no deadlines any more: the connection belongs to another.
func (b *bound) leave() { b.locked(func() { b.left = true }) }

// locked calls fn, unless the bound has left the connection. A connection without deadlines
// is served without: the errors of fn do not matter.
func (b *bound) locked(fn func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.left {
		fn()
	}
}

// next returns the deadline of a read or a write that begins now.
func (b *bound) next(until time.Time) time.Time {
	at := time.Now().Add(b.limit)
	if !until.IsZero() && until.Before(at) {
		return until
	}
	return at
}
