package admit

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/sema-go/sema"
)

// Listener returns a listener that holds a permit of gate for each open connection: Accept
// waits for one first. So connections beyond the capacity stay in the backlog of the
// kernel. A connection returns its permit when it is closed. An Accept that waits for a
// connection holds a permit, too. Closing the listener ends a wait.
func Listener(l net.Listener, gate sema.Gate) net.Listener {
	if l == nil || gate == nil {
		panic("admit: Listener: want a listener and a gate")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &listener{Listener: l, gate: gate, ctx: ctx, cancel: cancel}
}

type listener struct {
	net.Listener
	gate   sema.Gate
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	p, err := l.gate.Acquire(l.ctx, 1)
	switch {
	case l.ctx.Err() != nil:
		p.Release()
		return nil, net.ErrClosed
	case errors.Is(err, sema.ErrDraining), errors.Is(err, sema.ErrClosed):
		return nil, err
	case err != nil:
		return nil, temporary{err} // net/http calls Accept again
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		p.Release()
		return nil, err
	}
	return &heldConn{Conn: conn, release: p.Release}, nil
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.cancel(net.ErrClosed)
	return l.Listener.Close()
}

// A temporary error is one after which net/http calls Accept again, after a short delay.
type temporary struct{ error }

// Timeout implements [net.Error].
func (temporary) Timeout() bool { return true }

// Temporary implements [net.Error].
func (temporary) Temporary() bool { return true }

// Unwrap returns the error of the gate.
func (t temporary) Unwrap() error { return t.error }

// A heldConn is a connection that holds a permit.
type heldConn struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *heldConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without a copy.
func (c *heldConn) ReadFrom(r io.Reader) (int64, error) {
	if from, ok := c.Conn.(io.ReaderFrom); ok {
		return from.ReadFrom(r)
	}
	return io.Copy(writerOnly{c.Conn}, r)
}

// CloseWrite ends what is sent, as [net.TCPConn.CloseWrite] does. Servers use it so that a
// client can read its response before the connection is closed.
func (c *heldConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection without the permit, as [tls.Conn.NetConn] does.
func (c *heldConn) NetConn() net.Conn { return c.Conn }

// ErrNoLimit is the error of [Descriptors] on systems without a known limit on the
// descriptors of a process.
var ErrNoLimit = errors.New("the number of descriptors that this process may open is not known")

// Descriptors returns a semaphore for the files and connections that this process may open:
// the soft limit of the process (ulimit -n), less headroom for all that is opened without a
// permit, and less those that are open already. A process that runs out of descriptors
// fails with EMFILE wherever it happens to be; one that acquires a permit first waits, or
// rejects the request. Use it with [Listener], or acquire a permit for each file.
func Descriptors(headroom int64, opts ...sema.Option) (*sema.Semaphore, error) {
	limit, open, err := descriptors()
	if err != nil {
		return nil, err
	}
	capacity := limit - open - headroom
	if capacity < 1 || headroom < 0 {
		return nil, &sema.Error{Op: "descriptors", Err: sema.ErrInvalid, Capacity: limit, InUse: open, Weight: headroom,
			Detail: "the limit of the process leaves none", Advice: "raise it with ulimit -n, or lower the headroom"}
	}
	return sema.New(capacity, opts...), nil
}
