//go:build !mine

package exercises

import (
	"context"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// NewCounting returns a semaphore whose permits are the places of a channel: exercise 1.
func NewCounting(n int) Counting { return counting(make(chan struct{}, n)) }

// counting is a semaphore whose permits are the places of a channel.
type counting chan struct{}

func (c counting) Acquire(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err // a select would choose at random
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c counting) TryAcquire() bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c counting) Release() {
	select {
	case <-c:
	default:
		panic("exercises: more released than acquired")
	}
}

// NewPool returns a pool in which a semaphore counts and a mutex guards the lists: exercise 2.
func NewPool(size int64, open func() (*Conn, error)) Pool {
	return &connections{permits: sema.New(size), open: open, lent: make(map[*Conn]sema.Permit)}
}

// connections is a pool. Neither the semaphore nor the mutex does the work of the other.
type connections struct {
	permits *sema.Semaphore
	open    func() (*Conn, error)

	mu   sync.Mutex
	idle []*Conn               // guarded by mu: the last one is lent first
	lent map[*Conn]sema.Permit // guarded by mu
}

func (p *connections) Get(ctx context.Context) (*Conn, error) {
	permit, err := p.permits.Acquire(ctx, 1) // not under the mutex
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var c *Conn
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	} else if c, err = p.open(); err != nil {
		permit.Release() // a failed open must not cost a permit
		return nil, err
	}
	p.lent[c] = permit
	return c, nil
}

func (p *connections) Put(c *Conn) {
	p.mu.Lock()
	permit := p.lent[c] // an inert permit if c was put already
	if permit.Held() && !c.Broken {
		p.idle = append(p.idle, c)
	}
	delete(p.lent, c)
	p.mu.Unlock()
	permit.Release() // after the connection is there for the next caller
}

// Meet returns two functions, each of which posts its own signal and waits for the other one: exercise 3.
func Meet() (left, right func(ctx context.Context) error) {
	leftCame, rightCame := sema.NewCounter(0, 1), sema.NewCounter(0, 1)
	meet := func(mine, other *sema.Counter) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := mine.Post(1); err != nil { // first the own signal: otherwise both wait
				return err
			}
			return other.Wait(ctx, 1)
		}
	}
	return meet(leftCame, rightCame), meet(rightCame, leftCame)
}

// NewLimiter returns a token bucket: a counter that a timer refills: exercise 4.
func NewLimiter(perSecond, burst int64) Limiter {
	l := &limiter{tokens: sema.NewCounter(burst, burst), stop: make(chan struct{})}
	l.refill.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = l.tokens.Post(1) // sema.ErrOverRelease: the burst is complete
			case <-l.stop:
				return
			}
		}
	})
	return l
}

type limiter struct {
	tokens *sema.Counter
	stop   chan struct{}
	refill sync.WaitGroup
}

func (l *limiter) Wait(ctx context.Context) error { return l.tokens.Wait(ctx, 1) }

func (l *limiter) Close() { close(l.stop); l.refill.Wait() }

// First requests a permit of both, and cancels what it does not use: exercise 5.
func First(ctx context.Context, a, b *sema.Semaphore, fn func(which *sema.Semaphore)) error {
	one, other := a.Request(1), b.Request(1)
	defer one.Cancel() // releases what was granted and not used
	defer other.Cancel()
	which, ticket := a, one
	select {
	case <-one.Ready():
	case <-other.Ready():
		which, ticket = b, other
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	permit, err := ticket.Permit()
	if err != nil {
		return err
	}
	defer permit.Release()
	fn(which)
	return nil
}

// Transfer acquires both at once, so that it holds nothing while it waits: exercise 6.
func Transfer(ctx context.Context, from, to sema.Gate, fn func()) error {
	both, err := sema.AcquireAll(ctx, sema.Want{Gate: from, N: 1}, sema.Want{Gate: to, N: 1})
	if err != nil {
		return err
	}
	defer both.Release()
	fn()
	return nil
}

// NewBuffer returns the buffer of the textbook: exercise 7.
func NewBuffer(capacity int64) Buffer {
	return &buffer{places: sema.NewCounter(capacity, capacity), items: sema.NewCounter(0, capacity)}
}

// A buffer counts what producers wait for, and what consumers wait for. Its mutex is locked only
// after the wait: a caller that waits with the mutex would keep out the one that it waits for.
type buffer struct {
	places, items *sema.Counter
	mu            sync.Mutex
	queue         []int // guarded by mu
}

func (b *buffer) Put(ctx context.Context, item int) error {
	if err := b.places.Wait(ctx, 1); err != nil {
		return err // it took no place
	}
	b.mu.Lock()
	b.queue = append(b.queue, item)
	b.mu.Unlock()
	return b.items.Post(1)
}

func (b *buffer) Take(ctx context.Context) (int, error) {
	if err := b.items.Wait(ctx, 1); err != nil {
		return 0, err
	}
	b.mu.Lock()
	item := b.queue[0]
	b.queue = b.queue[1:]
	b.mu.Unlock()
	return item, b.places.Post(1)
}

// RunAll acquires in the loop, so that a job that has to wait costs no goroutine: exercise 8.
func RunAll(ctx context.Context, n int64, jobs ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	permits := sema.New(n)
	var running sync.WaitGroup
	for _, job := range jobs {
		permit, err := permits.Acquire(ctx, 1) // fails once the context has ended
		if err != nil {
			break
		}
		running.Go(func() {
			defer permit.Release()
			if err := job(ctx); err != nil {
				stop(err) // before the release, so that no other job gets the permit
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}
