package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Client is this process's use of an engine. Make one, and share it: a client
// has one subscription, and a session for each semaphore.
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

// New makes a client of a store, which it closes in the end.
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

// Options are how a semaphore is made, if it is not there, and how this client
// uses it.
type Options struct {
	Capacity   int64         // when it is made; what is stored counts after that. With 0 it lends nothing until Configure gives it more
	TTL        time.Duration // after which a silent process has lost its permits; 15 s unless told
	Ramp       int64         // permits a second by which the capacity rises; 0: at once
	MaxWaiters int64         // in line at the engine; 0: no bound
	Rate       time.Duration // if set, Capacity permits may be had in each such time, and come back by time alone

	Mode    Mode
	Block   int64         // Pooled: how many permits are kept ready beyond those in use, at most; 0: as many as seems right
	Quantum time.Duration // Pooled: for how long blocks are lent out here when others wait for them; default 50ms
	MaxWait time.Duration // bounds each wait; default 1m

	// TryTimeout bounds TryAcquire, which sends one batch and fails with
	// ErrUnavailable if the store does not reply in time; default 1s.
	TryTimeout time.Duration

	FailOpen FailOpen // what to do when the store does not reply; default: fail closed
	Labels   map[string]string
	Observer sema.Observer // is told what happens here, if not nil
}

// A Mode is how permits come from the engine.
type Mode uint8

const (
	// Exact: each acquire has its lease, and its place in the line of all
	// machines.
	Exact Mode = iota
	// Pooled: this process holds blocks and serves its goroutines from them at
	// local speed. The bound is as strict, the order is kept only within the
	// process: somebody elsewhere waits for a round trip, a quantum, and until
	// a permit that is out now is released, at most.
	Pooled
)

// differsFrom says in what, for people; "" if in nothing but the observer, which
// may not be comparable.
func (o Options) differsFrom(other Options) string {
	o.Observer, other.Observer = nil, nil
	var differences []string
	mine, others := reflect.ValueOf(o), reflect.ValueOf(other)
	for i := range mine.NumField() {
		if a, b := mine.Field(i).Interface(), others.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			differences = append(differences, fmt.Sprintf("%s %v, not %v", mine.Type().Field(i).Name, a, b))
		}
	}
	return strings.Join(differences, ", ")
}

// check fails on what makes no sense, with what to do.
func (o Options) check() error {
	switch {
	case o.MaxWait < 0:
		return fmt.Errorf("MaxWait %v: want a positive duration, or 0 for %v", o.MaxWait, defaultMaxWait)
	case o.TryTimeout < 0:
		return fmt.Errorf("TryTimeout %v: want a positive duration, or 0 for %v", o.TryTimeout, defaultTryTimeout)
	case o.Mode > Pooled:
		return fmt.Errorf("mode %d: want Exact or Pooled", o.Mode)
	case o.Mode == Pooled && o.Rate != 0:
		return errors.New("a rate cannot be pooled: what it lends does not come back")
	case o.Block < 0 || o.Quantum < 0:
		return fmt.Errorf("block %d, quantum %v: want neither below 0", o.Block, o.Quantum)
	case o.FailOpen.Limit < 0 || o.FailOpen.Until < 0:
		return fmt.Errorf("fail open %+v: want nothing below 0", o.FailOpen)
	case o.FailOpen.After < 0 || o.FailOpen.After > 0 && o.FailOpen.After < minSilence:
		return fmt.Errorf("fail open after %v: want at least %v, or answers that take their time count as silence", o.FailOpen.After, minSilence)
	}
	if err := CheckMeta(textOf(o.Labels)); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	for key := range o.Labels {
		if key == "" || strings.ContainsAny(key, " =\"\n") {
			return fmt.Errorf("label %q: want a key without spaces, quotes and =", key)
		}
	}
	return nil
}

// withDefaults is with what was not told.
func (o Options) withDefaults() Options {
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	o.Labels = maps.Clone(o.Labels)
	o.MaxWait = cmp.Or(o.MaxWait, defaultMaxWait)
	o.TryTimeout = cmp.Or(o.TryTimeout, defaultTryTimeout)
	o.Block = cmp.Or(o.Block, protocol.MaxCapacity)
	o.Quantum = cmp.Or(o.Quantum, defaultQuantum)
	o.FailOpen.After = cmp.Or(o.FailOpen.After, max(o.TTL, minSilence))
	o.FailOpen.Until = cmp.Or(o.FailOpen.Until, o.FailOpen.After)
	return o
}

const (
	defaultTTL        = 15 * time.Second
	defaultMaxWait    = time.Minute
	defaultTryTimeout = time.Second
	minSilence        = time.Second
)

// Config is what a semaphore is made with.
func (o Options) Config() protocol.Config {
	o = o.withDefaults()
	c := protocol.Config{Protocol: protocol.Version, Capacity: o.Capacity, Ramp: o.Ramp, MaxWaiters: o.MaxWaiters, TTL: protocol.Micros(o.TTL.Microseconds())}
	if o.Rate != 0 {
		c.Kind, c.Window = protocol.Rate, protocol.Micros(o.Rate.Microseconds())
	}
	return c
}

// Semaphore is the semaphore of that name, a [sema.Gate]. The engine is first
// asked when somebody acquires. Asked for again, with the same options, it is
// the same one, and the first one's observer is told.
func (c *Client) Semaphore(name string, o Options) (*Semaphore, error) {
	s, err := newSemaphore(c, name, o)
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
	if other := used.options.differsFrom(s.options); other != "" {
		return nil, &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: "this client uses it already, and differently: " + other + "; use the same options everywhere, or another client"}
	}
	return used, nil
}

// lend is the semaphore of which a keeper has its blocks: one of its own, since
// it is recalled as a whole, and nobody who looks on is in its way.
func (c *Client) lend(k *keeper, name string, o Options) (*Semaphore, error) {
	s, err := newSemaphore(c, name, o)
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
