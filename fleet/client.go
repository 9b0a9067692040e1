package fleet

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Client uses a store. Create one in a process and share it: a client has one
// subscription, and a session for each semaphore.
type Client struct {
	store Store
	self  protocol.Client
	clock func() protocol.Micros
	workers

	mu         sync.Mutex
	semaphores map[string]*Semaphore
	lent       map[string][]*Semaphore // by name; whose permits regions lend on
	closed     bool
}

// New returns a client of a store. Closing the client closes the store.
func New(store Store) *Client {
	c := &Client{
		store: store, clock: bootClock, semaphores: map[string]*Semaphore{}, lent: map[string][]*Semaphore{},
		self: protocol.NewClient("program"),
	}
	c.workers.begin()
	c.start(c.listen)
	return c
}

// Instance returns the name of this client in the listings of the store.
func (c *Client) Instance() string { return c.self.Instance }

// Semaphore returns the semaphore of that name, a [sema.Gate]. The store creates it with
// that capacity, from 0 (paused), on the first acquire, unless it exists: then what is
// stored applies, and [sema.EventMismatched] reports what this client asked for in
// vain, to the observers, or else to the default logger, once.
//
// A second call returns the same semaphore, whose observers are those of the first. It
// fails with ErrInvalid if its options differ.
func (c *Client) Semaphore(name string, capacity int64, opts ...Option) (*Semaphore, error) {
	s, err := newSemaphore(c, name, capacity, opts)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.semaphores[name]
	switch {
	case c.closed:
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrClosed}
	case used == nil:
		c.semaphores[name] = s
		return s, nil
	}
	if other := s.settings.differFrom(used.settings); other != "" {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: "this client uses it with other options: " + other,
			Advice: "use the same options everywhere, or another client"}
	}
	return used, nil
}

// lend returns the semaphore from which a keeper leases its blocks. It is one of its
// own, since it is recalled as a whole.
func (c *Client) lend(k *keeper, name string, capacity int64, opts ...Option) (*Semaphore, error) {
	s, err := newSemaphore(c, name, capacity, opts)
	if err != nil {
		return nil, err
	}
	s.lender = k
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrClosed}
	}
	c.lent[name] = append(c.lent[name], s)
	return s, nil
}

// unlend is when nothing of it is lent any more.
func (c *Client) unlend(s *Semaphore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent[s.name] = slices.DeleteFunc(c.lent[s.name], func(other *Semaphore) bool { return other == s })
	if len(c.lent[s.name]) == 0 {
		delete(c.lent, s.name)
	}
}

// forget makes room for another semaphore of that name.
func (c *Client) forget(s *Semaphore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.semaphores[s.name] == s {
		delete(c.semaphores, s.name)
	}
}

// all are the semaphores there are.
func (c *Client) all() []*Semaphore {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Collect(maps.Values(c.semaphores))
	for _, lent := range c.lent {
		all = append(all, lent...)
	}
	return all
}

// listen passes hints on to the semaphores, and subscribes again when it was
// cut off: what was missed meanwhile is heard at the next sign of life.
func (c *Client) listen() {
	for pause := newBackoff(); c.life.Err() == nil; {
		start := time.Now()
		err := c.store.Listen(c.life, c.self.Instance, c.hint)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if time.Since(start) > 10*lastPause {
			pause.reset()
		}
		c.sleep(pause.next())
	}
}

func (c *Client) hint(name string) {
	c.mu.Lock()
	own, lent := c.semaphores[name], slices.Clone(c.lent[name])
	c.mu.Unlock()
	if own != nil {
		own.hint()
	}
	for _, s := range lent {
		s.hint()
	}
}

// A backoff is a pause that grows, and that differs from others'.
type backoff struct{ pause time.Duration }

func newBackoff() *backoff { return &backoff{firstPause} }

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

func (b *backoff) reset() { b.pause = firstPause }

func (b *backoff) next() time.Duration {
	pause := b.pause/2 + rand.N(b.pause/2+1)
	b.pause = min(2*b.pause, lastPause)
	return pause
}

// sleep is over early when the client ends.
func (c *Client) sleep(d time.Duration) {
	select {
	case <-c.life.Done():
	case <-time.After(d):
	}
}
