package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Client is this process's use of an engine. Make one, and share it: a client
// has one subscription, and a session for each semaphore.
type Client struct {
	store    Store
	instance string
	clock    func() protocol.Micros
	life     context.Context
	end      context.CancelFunc
	workers  sync.WaitGroup
	starting sync.Mutex // held to start a worker, and to end the life after which none is

	mu         sync.Mutex
	semaphores map[string]*Semaphore
	closed     bool
}

// New makes a client of a store, which it closes in the end.
func New(store Store) *Client {
	host, _ := os.Hostname()
	life, end := context.WithCancel(context.Background())
	c := &Client{
		store: store, clock: bootClock, life: life, end: end, semaphores: map[string]*Semaphore{},
		instance: fmt.Sprintf("%s/%d/%08x", host, os.Getpid(), rand.Uint32()),
	}
	c.workers.Go(c.listen)
	return c
}

// Instance is the name by which the engine knows this client.
func (c *Client) Instance() string { return c.instance }

// Options are how a semaphore is made, if it is not there, and how this client
// uses it.
type Options struct {
	Capacity   int64         // when it is made; what is stored counts after that
	TTL        time.Duration // after which a silent process has lost its permits; 15 s unless told
	Ramp       int64         // permits a second by which the capacity rises; 0: at once
	MaxWaiters int64         // in line at the engine; 0: no bound
	Rate       time.Duration // if set, Capacity permits may be had in each such time, and come back by time alone
	MaxWait    time.Duration // bounds each wait; a minute unless told
	Observer   sema.Observer // is told what happens here, if not nil
}

// sameAs compares all but the observers, which may not be comparable.
func (o Options) sameAs(other Options) bool {
	o.Observer, other.Observer = nil, nil
	return o == other
}

const (
	defaultTTL     = 15 * time.Second
	defaultMaxWait = time.Minute
)

func (o Options) config() protocol.Config {
	c := protocol.Config{Protocol: protocol.Version, Capacity: o.Capacity, Ramp: o.Ramp, MaxWaiters: o.MaxWaiters, TTL: protocol.Micros(o.TTL.Microseconds())}
	if o.TTL == 0 {
		c.TTL = protocol.Micros(defaultTTL.Microseconds())
	}
	if o.Rate != 0 {
		c.Kind, c.Window = protocol.Rate, protocol.Micros(o.Rate.Microseconds())
	}
	return c
}

// Semaphore is the semaphore of that name, a [sema.Gate]. The engine is first
// asked when somebody acquires. Asked for again, with the same options, it is
// the same one.
func (c *Client) Semaphore(name string, o Options) (*Semaphore, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	config := o.config()
	if err := config.Check(); err != nil {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: err.Error()}
	}
	if o.MaxWait < 0 {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: fmt.Sprintf("MaxWait %v: want a positive duration, or 0 for %v", o.MaxWait, defaultMaxWait)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrClosed}
	}
	if s := c.semaphores[name]; s != nil {
		if !s.options.sameAs(o) {
			return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: fmt.Sprintf("this client uses it with other options: %+v, not %+v", s.options, o)}
		}
		return s, nil
	}
	s := newSemaphore(c, name, o, config)
	c.semaphores[name] = s
	return s, nil
}

// maxName bounds names, which become keys, files and labels.
const maxName = 200

func checkName(name string) error {
	invalid := func(detail string) error {
		return &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: detail}
	}
	if name == "" || len(name) > maxName {
		return invalid(fmt.Sprintf("name: want 1 to %d bytes, not %d", maxName, len(name)))
	}
	for _, r := range name {
		if r <= ' ' || r > '~' || r == '{' || r == '}' {
			return invalid(fmt.Sprintf("name: %q is not allowed; use printable ASCII without spaces and braces", r))
		}
	}
	return nil
}

// listen passes hints on to the semaphores, and subscribes again when it was
// cut off: what was missed meanwhile is heard at the next sign of life.
func (c *Client) listen() {
	for pause := newBackoff(); c.life.Err() == nil; {
		err := c.store.Listen(c.life, c.instance, c.hint)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		c.sleep(pause.next())
	}
}

func (c *Client) hint(name string) {
	c.mu.Lock()
	s := c.semaphores[name]
	c.mu.Unlock()
	if s != nil {
		s.hint()
	}
}

// start starts a worker, unless the client is at its end.
func (c *Client) start(work func()) bool {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.workers.Go(work)
	return true
}

// Close refuses who waits and who comes, and waits for the permits that are out.
// When all are back, and the engine has heard of it, or ctx has ended, it lets
// go of the engine. Permits that are out then are this process's until a TTL has
// passed, and no longer renewed: the error says how many.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return &sema.Error{Op: "close", Err: sema.ErrClosed}
	}
	c.closed = true
	c.mu.Unlock()
	for _, s := range c.semaphores {
		s.close()
	}
	var left int64
	for _, s := range c.semaphores {
		left += s.drain(ctx)
	}
	c.starting.Lock()
	c.end()
	c.starting.Unlock()
	c.workers.Wait()
	err := c.store.Close()
	if left > 0 {
		err = errors.Join(err, &sema.Error{Op: "close", Err: context.Cause(ctx),
			Detail: fmt.Sprintf("%d permits were not released; they are free when their TTL has passed", left)})
	}
	return err
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
