package fleet

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Client uses a store. Create one per process and share it: a client has one
// subscription, and one session per semaphore in use.
type Client struct {
	store Store
	self  protocol.Client
	clock func() protocol.Micros
	workers

	mu         sync.Mutex
	semaphores map[string]*Semaphore
	lent       map[string][]*Semaphore // by name; semaphores from which keepers lease blocks
	closed     bool
}

// New returns a client of a store. Closing the client closes the store.
func New(store Store) *Client {
	c := &Client{
		store: store, clock: clock(), semaphores: map[string]*Semaphore{}, lent: map[string][]*Semaphore{},
		self: protocol.NewClient("program"),
	}
	c.workers.begin()
	c.start(c.listen)
	return c
}

// clock returns the clock of a client. In a testing/synctest bubble, and nowhere else,
// time.Now has no monotonic reading; there, a client uses the time of the bubble, since timers
// do.
func clock() func() protocol.Micros {
	if now := time.Now(); now != now.Round(0) {
		return bootClock
	}
	return func() protocol.Micros { return protocol.Micros(time.Now().UnixMicro()) }
}

// Instance returns the unique name of this client in the listings of the store.
func (c *Client) Instance() string { return c.self.Instance }

// Semaphore returns the semaphore with a name, a [sema.Gate]. The first acquire creates it
// in the store with the capacity (0: paused) and the options, unless it exists. If it
// exists, the stored configuration applies; [sema.EventMismatched] reports differences
// once, to the observers or else to the default logger.
//
// A second call returns the same semaphore, with the observers of the first call. It fails
// with ErrInvalid if its capacity or other options differ.
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
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: "this client uses the semaphore with other options: " + other,
			Advice: "use the same options everywhere, or another client"}
	}
	return used, nil
}

// openLent returns a semaphore from which a keeper leases blocks. The keeper has one of its
// own, since the store recalls all blocks of a session together.
func (c *Client) openLent(k *keeper, name string, capacity int64, opts ...Option) (*Semaphore, error) {
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

// removeLent removes a semaphore of a keeper, after all its blocks were returned.
func (c *Client) removeLent(s *Semaphore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent[s.name] = slices.DeleteFunc(c.lent[s.name], func(other *Semaphore) bool { return other == s })
	if len(c.lent[s.name]) == 0 {
		delete(c.lent, s.name)
	}
}

// remove removes a closed semaphore, so that [Client.Semaphore] creates a new one.
func (c *Client) remove(s *Semaphore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.semaphores[s.name] == s {
		delete(c.semaphores, s.name)
	}
}

// allSemaphores returns all semaphores, those of keepers included.
func (c *Client) allSemaphores() []*Semaphore {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Collect(maps.Values(c.semaphores))
	for _, lent := range c.lent {
		all = append(all, lent...)
	}
	return all
}

// listen passes notifications on to the semaphores, and subscribes again after a failure.
// The next heartbeat makes up for notifications that were lost meanwhile.
func (c *Client) listen() {
	for pause := (backoff{}); c.life.Err() == nil; {
		start := time.Now()
		err := c.store.Listen(c.life, c.self.Instance, c.notified)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if time.Since(start) > 10*lastPause {
			pause = backoff{}
		}
		c.sleep(pause.next())
	}
}

func (c *Client) notified(name string) {
	c.mu.Lock()
	own, lent := c.semaphores[name], slices.Clone(c.lent[name])
	c.mu.Unlock()
	if own != nil {
		own.notified()
	}
	for _, s := range lent {
		s.notified()
	}
}

// A backoff is a pause that doubles with each use, with jitter. The zero backoff begins
// with firstPause and is bounded by lastPause.
type backoff struct{ pause time.Duration }

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// next returns a random pause between half of the current one and all of it, and doubles
// the current one.
func (b *backoff) next() time.Duration {
	most := cmp.Or(b.pause, firstPause)
	b.pause = min(2*most, lastPause)
	return most/2 + rand.N(most/2+1)
}

// sleep waits for d, or until the client is closed.
func (c *Client) sleep(d time.Duration) {
	select {
	case <-c.life.Done():
	case <-time.After(d):
	}
}
