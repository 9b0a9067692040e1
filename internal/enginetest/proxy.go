package enginetest

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Proxy is a network between clients and a server, which can be a bad one.
type Proxy struct {
	Address string // for clients
	Port    int    // which is in it

	tb       TB
	identify func(hello []byte) (source string) // nil: all clients are alike
	lost     atomic.Int64
	running  sync.WaitGroup

	mu       sync.Mutex // guards the following
	target   string
	fault    Fault
	barred   map[string]bool
	listener net.Listener // nil while connections are refused
	links    map[*link]bool
	closed   bool
}

// A Fault is how a network is bad. Zero, it is not.
type Fault struct {
	// Refuse has connections be refused. Those that there are stay.
	Refuse bool

	// Latency is how much later everything arrives, each way and in order.
	Latency time.Duration

	// LoseRequests has nothing arrive at the server, and LoseReplies nothing at
	// the clients, neither what is said nor that the other has gone.
	LoseRequests, LoseReplies bool

	// CutReplies has a reply be lost, and then its connection.
	CutReplies bool
}

// NewProxy is a proxy that stands before an address.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	return NewSourceProxy(t, target, nil)
}

// NewSourceProxy is one that can tell its clients apart, by the first they say:
// as much of it as comes before an empty line.
func NewSourceProxy(t TB, target string, identify func(hello []byte) (source string)) *Proxy {
	t.Helper()
	port := Port(t)
	p := &Proxy{
		Address: Loopback(port), Port: port, tb: t, identify: identify,
		target: target, barred: map[string]bool{}, links: map[*link]bool{},
	}
	p.SetFault(Fault{})
	t.Cleanup(p.close)
	return p
}

// SetFault replaces the fault that there was. A connection that has lost something
// cannot go on without it, so it is cut when no more is lost.
func (p *Proxy) SetFault(f Fault) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	for l := range p.links {
		if l.holes[requests] && !f.LoseRequests || l.holes[replies] && !f.LoseReplies {
			l.cut()
		}
	}
	switch {
	case f.Refuse && p.listener != nil:
		p.listener.Close()
		p.listener = nil
		p.awaitRefusal()
	case !f.Refuse && p.listener == nil && !p.closed:
		listener, err := listen(p.Address)
		if err != nil {
			p.tb.Fatalf("a proxy: %v", err)
		}
		p.listener = listener
		p.running.Go(func() { p.accept(listener) })
	}
}

// listen waits for an address that is in use: a process that another test starts has
// the listeners of this one, which are closed here, until its program has begun.
func listen(address string) (l net.Listener, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if l, err = net.Listen("tcp", address); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// awaitRefusal is when the listener was closed: each child of this process has it,
// too, until its program has begun.
func (p *Proxy) awaitRefusal() {
	p.tb.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		c, err := net.Dial("tcp", p.Address)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return
		case err == nil:
			c.Close()
		}
	}
	p.tb.Fatalf("a proxy: somebody listens at %s, which was to refuse", p.Address)
}

// Heal ends all faults.
func (p *Proxy) Heal() { p.tb.Helper(); p.SetFault(Fault{}) }

// Retarget has new connections go elsewhere.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut ends all connections.
func (p *Proxy) Cut() { p.cutIf(func(*link) bool { return true }) }

// Bar cuts off one source, and Admit lets it in again.
func (p *Proxy) Bar(source string) {
	p.mu.Lock()
	p.barred[source] = true
	p.mu.Unlock()
	p.cutIf(func(l *link) bool { return l.source == source })
}

// Admit ends what Bar has begun.
func (p *Proxy) Admit(source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.barred, source)
}

// Lost is how many bytes did not arrive.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

func (p *Proxy) cutIf(chosen func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if chosen(l) {
			l.cut()
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

// A link is one client's connection and the one that is made for it.
type link struct {
	source         string
	client, server net.Conn      // server is nil until it is connected
	over           chan struct{} // closed by cut
	holes          [2]bool       // whether something was lost, each way; guarded by the proxy's mutex
}

// cut may be called again. The proxy's mutex is held.
func (l *link) cut() {
	select {
	case <-l.over:
		return
	default:
	}
	close(l.over)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client, over: make(chan struct{})}
	defer p.forget(l)
	if !p.note(l) {
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
	both.Go(func() { p.carry(l, requests, hello) })
	both.Go(func() { p.carry(l, replies, nil) })
	both.Wait()
}

func (p *Proxy) note(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	return !p.closed
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.cut()
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

// connect reports whether the link leads to the server now.
func (p *Proxy) connect(l *link, hello []byte) bool {
	p.mu.Lock()
	target := p.target
	if p.identify != nil {
		l.source = p.identify(hello)
	}
	barred := p.barred[l.source]
	p.mu.Unlock()
	if barred {
		return false
	}
	server, err := net.DialTimeout("tcp", target, patience)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-l.over:
		server.Close()
		return false
	default:
	}
	l.server = server
	return true
}

// A way is a direction.
type way int

const (
	requests way = iota
	replies
)

// A parcel is on its way until it is due.
type parcel struct {
	content []byte
	due     time.Time
}

// carry takes what is sent one way from the one to the other, until the link is
// cut or one of them has gone.
func (p *Proxy) carry(l *link, w way, first []byte) {
	from, to := l.client, l.server
	if w == replies {
		from, to = to, from
	}
	underway := make(chan parcel, 256)
	var delivery sync.WaitGroup
	delivery.Go(func() {
		deliver(l, to, underway)
		p.mu.Lock()
		defer p.mu.Unlock()
		l.cut()
	})
	defer delivery.Wait()
	defer close(underway)
	if len(first) > 0 {
		p.send(l, w, first, underway)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.send(l, w, bytes.Clone(buffer[:n]), underway)
		}
		if err != nil {
			if p.loses(l, w) {
				<-l.over // that it has gone is not known either
			}
			return
		}
	}
}

// send puts something on its way, unless it is lost.
func (p *Proxy) send(l *link, w way, content []byte, underway chan<- parcel) {
	if p.loses(l, w) {
		p.lost.Add(int64(len(content)))
		return
	}
	select {
	case underway <- parcel{content, p.dueTime()}:
	case <-l.over:
	}
}

// loses reports whether what is sent now is lost, and notes that it was.
func (p *Proxy) loses(l *link, w way) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w == replies && p.fault.CutReplies:
		l.cut()
		return true
	case w == requests && p.fault.LoseRequests, w == replies && p.fault.LoseReplies:
		l.holes[w] = true
		return true
	}
	return false
}

func (p *Proxy) dueTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.fault.Latency)
}

func deliver(l *link, to net.Conn, underway <-chan parcel) {
	for next := range underway {
		if wait := time.Until(next.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.over:
			}
		}
		if _, err := to.Write(next.content); err != nil {
			return
		}
	}
}
