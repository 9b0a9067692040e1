//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	_ "github.com/sema-go/sema/x/stores" // every engine
)

// semaphoreName is the one semaphore of a run.
const semaphoreName = "chaos"

// An assignment is what a worker process is to do.
type assignment struct {
	URL      string
	Inside   string // for half of them, instead; "" if there is no other
	API      string // for those who speak JSON, instead: addresses of servers
	Socket   string // of the resource
	Capacity int64
	TTL      time.Duration
	Mode     fleet.Mode
	Callers  int
	Seed     uint64
}

// assignmentVariable makes this program a worker.
const assignmentVariable = "SEMA_CHAOS_WORKER"

// workIfAssigned is the whole life of a worker process.
func workIfAssigned() {
	text, assigned := os.LookupEnv(assignmentVariable)
	if !assigned {
		return
	}
	var a assignment
	err := json.Unmarshal([]byte(text), &a)
	if err == nil {
		err = work(a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work acquires, writes to the resource and releases, until it is told to stop
// by SIGTERM or nobody listens any more.
func work(a assignment) error {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(told)
	defer end()
	gate, close, err := a.gate(ctx)
	if err != nil {
		return err
	}
	var callers sync.WaitGroup
	for i := range a.Callers {
		callers.Go(func() {
			defer end() // nobody listens
			c, err := dial(a, rand.New(rand.NewPCG(a.Seed, uint64(i))))
			for err == nil && ctx.Err() == nil {
				err = c.use(ctx, gate)
			}
		})
	}
	callers.Wait()
	farewell, cancel := context.WithTimeout(context.Background(), 3*a.TTL)
	defer cancel()
	return close(farewell)
}

// gate is the semaphore, by the library or as a script would have it.
func (a assignment) gate(ctx context.Context) (gate sema.Gate, close func(context.Context) error, err error) {
	if a.API != "" {
		g := newScriptGate(a)
		return g, func(context.Context) error { g.bye.Wait(); return nil }, nil
	}
	client, err := open(ctx, a.URL)
	if err != nil {
		return nil, nil, err
	}
	gate, err = client.Semaphore(semaphoreName, a.Capacity, fleet.TTL(a.TTL), a.Mode, sema.MaxWait(time.Hour))
	return gate, func(ctx context.Context) error { return client.Close(ctx) }, err
}

// fenceOf is the fence of a permit of either kind.
func fenceOf(p sema.Permit) protocol.Fence {
	if l, ok := p.Lease().(*scriptLease); ok {
		return l.fence
	}
	lease, _ := fleet.LeaseOf(p)
	return lease.Fence
}

// open tries again while the engine is out of reach: that is when workers are
// begun, too.
func open(ctx context.Context, url string) (*fleet.Client, error) {
	for {
		client, err := fleet.Open(ctx, url)
		if err == nil || ctx.Err() != nil || errors.Is(err, sema.ErrInvalid) {
			return client, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A caller is one goroutine of a worker, with a line to the resource.
type caller struct {
	assignment
	rng *rand.Rand
	out *json.Encoder
	in  *json.Decoder
}

func dial(a assignment, rng *rand.Rand) (*caller, error) {
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		return nil, err
	}
	return &caller{a, rng, json.NewEncoder(conn), json.NewDecoder(conn)}, nil
}

// A message is what a caller says about the one permit it asks for or has.
type message struct {
	Kind   kind
	Weight int64          `json:",omitempty"`
	Fence  protocol.Fence // of a write, or a grant that is no part of a block
	Sure   time.Time      // when the permit was surely held
	From   time.Time      // when a release began
	At     time.Time
	Err    string `json:",omitempty"`
}

type kind string

const (
	asks      kind = "asks"
	granted   kind = "granted"
	refused   kind = "refused"
	writes    kind = "writes"
	cancelled kind = "cancelled"
	released  kind = "released"
	lost      kind = "lost"
)

// tell says something and waits for the answer: whether a write was admitted.
func (c *caller) tell(m message) (admitted bool, err error) {
	m.At = time.Now()
	if err := c.out.Encode(m); err != nil {
		return false, err
	}
	err = c.in.Decode(&admitted)
	return admitted, err
}

// use is one permit's life. It fails if the resource is gone.
func (c *caller) use(ctx context.Context, gate sema.Gate) error {
	weight := 1 + c.rng.Int64N(2)
	if _, err := c.tell(message{Kind: asks, Weight: weight}); err != nil {
		return err
	}
	asking, cancel := ctx, context.CancelFunc(func() {})
	if c.rng.IntN(10) == 0 { // some lose patience
		asking, cancel = context.WithTimeout(ctx, time.Duration(c.rng.IntN(100))*time.Millisecond)
	}
	p, err := gate.Acquire(asking, weight)
	cancel()
	switch {
	case err != nil && asking.Err() != nil:
		_, err = c.tell(message{Kind: cancelled})
		return err
	case err != nil:
		_, gone := c.tell(message{Kind: refused, Err: err.Error()})
		time.Sleep(50 * time.Millisecond)
		return gone
	}
	defer p.Release()
	grant := message{Kind: granted}
	if c.Mode == fleet.ModeExact {
		grant.Fence.Seq = fenceOf(p).Seq
	}
	if _, err := c.tell(grant); err != nil {
		return err
	}
	hold := 10 * time.Millisecond
	if c.rng.IntN(25) == 0 {
		hold = c.TTL // long enough to be lost
	}
	for range 1 + c.rng.IntN(4) {
		if held, err := c.write(p); err != nil || !held {
			return err
		}
		select {
		case <-p.Lost(): // the next write finds out
		case <-time.After(time.Duration(c.rng.Int64N(int64(hold)))):
		}
	}
	from := time.Now() // before the look, as in write
	if p.Err() != nil {
		_, err := c.tell(message{Kind: lost})
		return err
	}
	p.Release()
	_, err = c.tell(message{Kind: released, From: from})
	return err
}

// write writes to the resource if the permit is held, as far as is known; some
// writes are as if they had been on their way before that was looked at, and are
// the guard's to refuse. One that is refused is the end of it.
func (c *caller) write(p sema.Permit) (held bool, err error) {
	fence := fenceOf(p)
	sure := time.Now() // before the look, or a pause in between would be counted
	if c.rng.IntN(3) == 0 {
		sure = time.Time{}
	} else if p.Err() != nil {
		_, err := c.tell(message{Kind: lost})
		return false, err
	}
	admitted, err := c.tell(message{Kind: writes, Fence: fence, Sure: sure})
	if err != nil || admitted {
		return err == nil, err
	}
	_, err = c.tell(message{Kind: lost})
	return false, err
}
