package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A directCall is a call on a connection that it shares with no other call at that time. Its
// goroutine writes the request and reads the reply itself. There is at most one for each
// server. All other calls share a connection, which takes two more goroutine switches for each
// and sends those that are concurrent together.
//
// It is also the context of the call. The client library reads only the deadline of a context
// while it waits for the reply. So when the context ends, the call interrupts itself: it sets
// a deadline in the past on its connection. The library then closes the connection, because
// the reply may still arrive on it, and the next direct call opens another one.
type directCall struct {
	context.Context           // of the caller
	deadline        time.Time // of the call, at most that of the context
	stop            func() bool

	mu          sync.Mutex // held to set the deadline of the connection
	conn        net.Conn   // the one that the call uses; nil before and after that
	interrupted bool
}

// directTimeout bounds a direct call. It is then repeated on the shared connection, which has
// perhaps not failed.
const directTimeout = time.Second

// beginDirect returns a direct call, or nil if there is one already, or if the context has no
// deadline, which the library uses as well to recognize a call that it should not queue.
func (c *caller) beginDirect(ctx context.Context) *directCall {
	deadline, bounded := ctx.Deadline()
	if !bounded || c.direct.Load() != nil {
		return nil
	}
	if latest := time.Now().Add(directTimeout); latest.Before(deadline) {
		deadline = latest
	}
	d := &directCall{Context: ctx, deadline: deadline}
	if !c.direct.CompareAndSwap(nil, d) {
		return nil
	}
	if abandonable, ok := ctx.(abandonable); ok {
		d.stop = abandonable.AfterAbandoned(d.interrupt)
	} else {
		d.stop = context.AfterFunc(ctx, d.interrupt)
	}
	return d
}

// An abandonable is a context of package fleet, which this package uses as follows: to watch
// the caller is enough, since the call has a deadline of its own.
type abandonable interface {
	AfterAbandoned(f func()) (stop func() bool)
}

// endDirect ends a direct call. An interruption that comes too late finds no connection.
func (c *caller) endDirect(d *directCall) {
	d.stop()
	d.mu.Lock()
	d.conn = nil
	d.mu.Unlock()
	c.direct.Store(nil)
}

// Deadline implements [context.Context].
func (d *directCall) Deadline() (time.Time, bool) { return d.deadline, true }

// directKey is the key under which the context of a direct call returns the call.
type directKey struct{}

// Value implements [context.Context].
func (d *directCall) Value(key any) any {
	if key == (directKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// interrupt ends the call when its context has ended.
func (d *directCall) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupted = true
	if d.conn != nil {
		_ = d.conn.SetDeadline(longAgo) // fails only if the connection is closed already
	}
}

var longAgo = time.Unix(1, 0)

// setDeadline sets the deadline of the connection that the call uses.
func (d *directCall) setDeadline(conn net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	if d.interrupted {
		t = longAgo
	}
	return conn.SetDeadline(t)
}

// A watchedConn notes which direct call uses it.
type watchedConn struct {
	net.Conn
	caller *caller
	opener *directCall // the one for which it was opened; nil: none
}

// dial opens connections for the client library, in the same way as the library.
func (c *caller) dial(ctx context.Context, address string, dialer *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
	if secure != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil, err
	}
	opener, _ := ctx.Value(directKey{}).(*directCall)
	return &watchedConn{conn, c, opener}, nil
}

// SetDeadline implements [net.Conn]. The library calls it before each request without a
// queue, with the deadline of the context, which identifies the call. The requests with which
// it introduces itself on a new connection have other deadlines.
func (w *watchedConn) SetDeadline(t time.Time) error {
	if d := w.caller.direct.Load(); d != nil && (w.opener == d || t.Equal(d.deadline)) {
		return d.setDeadline(w.Conn, t)
	}
	return w.Conn.SetDeadline(t)
}
