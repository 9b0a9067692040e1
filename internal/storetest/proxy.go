package storetest

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Proxy forwards connections between clients and a server, and can inject
// network faults.
type Proxy struct {
	Address string // for clients
	Port    int    // the port of Address

	tb       TB
	identify func(hello []byte) (source string) // nil: clients are not distinguished
	lost     atomic.Int64
	running  sync.WaitGroup

	mu       sync.Mutex // guards the following
	target   string
	fault    Fault
	blocked  map[string]bool
	listener net.Listener // nil while connections are rejected
	links    map[*link]bool
	closed   bool
}

// A Fault describes the faults of a network. The zero Fault has none.
type Fault struct {
	// Reject makes the proxy reject new connections. Existing ones stay.
	Reject bool

	// Latency delays everything in each direction. The order is kept.
	Latency time.Duration

	// LoseRequests drops everything sent to the server, and LoseReplies
	// everything sent to the clients: data as well as the closing of
	// connections.
	LoseRequests, LoseReplies bool

	// CutReplies drops a reply, and then closes its connection.
	CutReplies bool
}

// NewProxy returns a proxy that forwards to an address.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	return NewSourceProxy(t, target, nil)
}

// NewSourceProxy returns a proxy that distinguishes its clients. identify gets
// the first bytes a client sends, up to the first empty line.
func NewSourceProxy(t TB, target string, identify func(hello []byte) (source string)) *Proxy {
	t.Helper()
	port := Port(t)
	p := &Proxy{
		Address: Loopback(port), Port: port, tb: t, identify: identify,
		target: target, blocked: map[string]bool{}, links: map[*link]bool{},
	}
	p.SetFault(Fault{})
	t.Cleanup(p.close)
	return p
}

// SetFault replaces the current fault. A connection that lost data cannot
// continue without it, so SetFault closes it once its fault ends.
func (p *Proxy) SetFault(f Fault) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	for l := range p.links {
		if l.incomplete[requests] && !f.LoseRequests || l.incomplete[replies] && !f.LoseReplies {
			l.cutLocked()
		}
	}
	switch {
	case f.Reject && p.listener != nil:
		p.listener.Close()
		p.listener = nil
		p.awaitClosed()
	case !f.Reject && p.listener == nil && !p.closed:
		listener, err := listen(p.Address)
		if err != nil {
			p.tb.Fatalf("proxy: %v", err)
		}
		p.listener = listener
		p.running.Go(func() { p.accept(listener) })
	}
}

// listen retries while the address is in use: a child process holds the closed
// listeners of this process between fork and exec.
func listen(address string) (l net.Listener, err error) {
	for end := time.Now().Add(serverTimeout); ; time.Sleep(time.Millisecond) {
		if l, err = net.Listen("tcp", address); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// awaitClosed waits until connections are rejected after the listener was
// closed: each child of this process holds the listener, too, between fork and
// exec.
func (p *Proxy) awaitClosed() {
	p.tb.Helper()
	for end := time.Now().Add(serverTimeout); time.Now().Before(end); {
		c, err := net.Dial("tcp", p.Address)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return
		case err == nil:
			c.Close()
		}
	}
	p.tb.Fatalf("proxy: %s still accepts connections after the listener was closed", p.Address)
}

// Heal removes all faults.
func (p *Proxy) Heal() { p.tb.Helper(); p.SetFault(Fault{}) }

// Retarget makes new connections go to target.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut closes all connections.
func (p *Proxy) Cut() { p.cutIf(func(*link) bool { return true }) }

// Block closes the connections of one source and rejects new ones until
// Unblock.
func (p *Proxy) Block(source string) {
	p.mu.Lock()
	p.blocked[source] = true
	p.mu.Unlock()
	p.cutIf(func(l *link) bool { return l.source == source })
}

// Unblock ends Block.
func (p *Proxy) Unblock(source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.blocked, source)
}

// Lost returns the number of bytes that were dropped.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

func (p *Proxy) cutIf(match func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if match(l) {
			l.cutLocked()
		}
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
	}
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// A link is a client's connection and the proxy's connection to the server for
// it.
type link struct {
	source         string
	client, server net.Conn      // server is nil until it is connected
	done           chan struct{} // closed by cutLocked
	incomplete     [2]bool       // per direction: whether data was dropped; guarded by Proxy.mu
}

// cutLocked closes both connections. It may be called again.
func (l *link) cutLocked() {
	select {
	case <-l.done:
		return
	default:
	}
	close(l.done)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client, done: make(chan struct{})}
	defer p.remove(l)
	if !p.add(l) {
		return
	}
	var hello []byte
	if p.identify != nil {
		hello = readHello(client)
	}
	if !p.connect(l, hello) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.forward(l, requests, hello) })
	both.Go(func() { p.forward(l, replies, nil) })
	both.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	return !p.closed
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.cutLocked()
	delete(p.links, l)
}

func readHello(from net.Conn) []byte {
	var hello []byte
	buffer := make([]byte, 4<<10)
	for len(hello) < cap(buffer) && !bytes.Contains(hello, []byte("\r\n\r\n")) {
		n, err := from.Read(buffer)
		hello = append(hello, buffer[:n]...)
		if err != nil {
			break
		}
	}
	return hello
}

// connect connects the link to the server and reports whether it succeeded.
func (p *Proxy) connect(l *link, hello []byte) bool {
	p.mu.Lock()
	target := p.target
	if p.identify != nil {
		l.source = p.identify(hello)
	}
	blocked := p.blocked[l.source]
	p.mu.Unlock()
	if blocked {
		return false
	}
	server, err := net.DialTimeout("tcp", target, serverTimeout)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-l.done:
		server.Close()
		return false
	default:
	}
	l.server = server
	return true
}

// A direction is that of requests or that of replies.
type direction int

const (
	requests direction = iota
	replies
)

// A chunk is data to be written at its due time.
type chunk struct {
	content []byte
	due     time.Time
}

// forward copies data in one direction until the link is cut or one side has
// closed its connection.
func (p *Proxy) forward(l *link, d direction, first []byte) {
	from, to := l.client, l.server
	if d == replies {
		from, to = to, from
	}
	inFlight := make(chan chunk, 256)
	var writer sync.WaitGroup
	writer.Go(func() {
		writeWhenDue(l, to, inFlight)
		p.mu.Lock()
		defer p.mu.Unlock()
		l.cutLocked()
	})
	defer writer.Wait()
	defer close(inFlight)
	if len(first) > 0 {
		p.enqueue(l, d, first, inFlight)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.enqueue(l, d, bytes.Clone(buffer[:n]), inFlight)
		}
		if err != nil {
			if p.drops(l, d) {
				<-l.done // the other side must not see the close either
			}
			return
		}
	}
}

// enqueue schedules content to be written, unless it is dropped.
func (p *Proxy) enqueue(l *link, d direction, content []byte, inFlight chan<- chunk) {
	if p.drops(l, d) {
		p.lost.Add(int64(len(content)))
		return
	}
	select {
	case inFlight <- chunk{content, p.dueTime()}:
	case <-l.done:
	}
}

// drops reports whether data sent now is dropped, and records that in the link.
func (p *Proxy) drops(l *link, d direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case d == replies && p.fault.CutReplies:
		l.cutLocked()
		return true
	case d == requests && p.fault.LoseRequests, d == replies && p.fault.LoseReplies:
		l.incomplete[d] = true
		return true
	}
	return false
}

func (p *Proxy) dueTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.fault.Latency)
}

func writeWhenDue(l *link, to net.Conn, inFlight <-chan chunk) {
	for next := range inFlight {
		if wait := time.Until(next.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.done:
			}
		}
		if _, err := to.Write(next.content); err != nil {
			return
		}
	}
}
