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
	_ "github.com/sema-go/sema/x/stores" // all stores
)

// semaphoreName is the name of the only semaphore of a run.
const semaphoreName = "chaos"

// An assignment describes the work of a worker process.
type assignment struct {
	URL            string
	PartitionedURL string // used by half of the workers instead of URL; "": there is none
	API            string // comma-separated server addresses, for workers that use JSON instead of URL
	Socket         string // of the resource
	Capacity       int64
	TTL            time.Duration
	Mode           fleet.Mode
	Callers        int
	Seed           uint64
}

// assignmentVariable is the environment variable that makes this program a
// worker.
const assignmentVariable = "SEMA_CHAOS_WORKER"

// runWorkerIfAssigned runs a worker and exits, if this process is a worker.
func runWorkerIfAssigned() {
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

// work acquires, writes to the resource and releases, until it receives SIGTERM
// or the resource has closed its connection.
func work(a assignment) error {
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(terminated)
	defer end()
	gate, close, err := a.gate(ctx)
	if err != nil {
		return err
	}
	var callers sync.WaitGroup
	for i := range a.Callers {
		callers.Go(func() {
			defer end() // the resource is gone
			c, err := dial(a, rand.New(rand.NewPCG(a.Seed, uint64(i))))
			for err == nil && ctx.Err() == nil {
				err = c.use(ctx, gate)
			}
		})
	}
	callers.Wait()
	closeCtx, cancel := context.WithTimeout(context.Background(), 3*a.TTL)
	defer cancel()
	return close(closeCtx)
}

// gate returns the semaphore, accessed through the library or as a script.
func (a assignment) gate(ctx context.Context) (gate sema.Gate, close func(context.Context) error, err error) {
	if a.API != "" {
		g := newScriptGate(a)
		return g, func(context.Context) error { g.releases.Wait(); return nil }, nil
	}
	client, err := open(ctx, a.URL)
	if err != nil {
		return nil, nil, err
	}
	gate, err = client.Semaphore(semaphoreName, a.Capacity, fleet.TTL(a.TTL), a.Mode, sema.MaxWait(time.Hour))
	return gate, func(ctx context.Context) error { return client.Close(ctx) }, err
}

// fenceOf returns the fence of a permit of either kind.
func fenceOf(p sema.Permit) protocol.Fence {
	if l, ok := p.Lease().(*scriptLease); ok {
		return l.fence
	}
	lease, _ := fleet.LeaseOf(p)
	return lease.Fence
}

// open retries while the store is unreachable: workers also start during
// faults.
func open(ctx context.Context, url string) (*fleet.Client, error) {
	for {
		client, err := fleet.Open(ctx, url)
		if err == nil || ctx.Err() != nil || errors.Is(err, sema.ErrInvalid) {
			return client, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A caller is one goroutine of a worker, with a connection to the resource.
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

// A message reports a change of the one permit that a caller requested or
// holds.
type message struct {
	Kind      kind
	Weight    int64          `json:",omitempty"`
	Fence     protocol.Fence // of a write, or of a grant that is not part of a block
	Confirmed time.Time      // when the permit was found held
	From      time.Time      // when a release began
	At        time.Time
	Err       string `json:",omitempty"`
}

type kind string

const (
	requested kind = "requested"
	granted   kind = "granted"
	failed    kind = "failed"
	writes    kind = "writes"
	cancelled kind = "cancelled"
	released  kind = "released"
	lost      kind = "lost"
)

// report sends a message and waits for the reply: whether a write was admitted.
func (c *caller) report(m message) (admitted bool, err error) {
	m.At = time.Now()
	if err := c.out.Encode(m); err != nil {
		return false, err
	}
	err = c.in.Decode(&admitted)
	return admitted, err
}

// use requests, uses and releases one permit. It fails if the resource is gone.
func (c *caller) use(ctx context.Context, gate sema.Gate) error {
	weight := 1 + c.rng.Int64N(2)
	if _, err := c.report(message{Kind: requested, Weight: weight}); err != nil {
		return err
	}
	acquireCtx, cancel := ctx, context.CancelFunc(func() {})
	if c.rng.IntN(10) == 0 { // some give up early
		acquireCtx, cancel = context.WithTimeout(ctx, time.Duration(c.rng.IntN(100))*time.Millisecond)
	}
	p, err := gate.Acquire(acquireCtx, weight)
	cancel()
	switch {
	case err != nil && acquireCtx.Err() != nil:
		_, err = c.report(message{Kind: cancelled})
		return err
	case err != nil:
		_, reportErr := c.report(message{Kind: failed, Err: err.Error()})
		time.Sleep(50 * time.Millisecond)
		return reportErr
	}
	defer p.Release()
	grant := message{Kind: granted}
	if c.Mode == fleet.ModeExact {
		grant.Fence.Seq = fenceOf(p).Seq
	}
	if _, err := c.report(grant); err != nil {
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
		case <-p.Lost(): // the next write detects it
		case <-time.After(time.Duration(c.rng.Int64N(int64(hold)))):
		}
	}
	from := time.Now() // before the check, as in write
	if p.Err() != nil {
		_, err := c.report(message{Kind: lost})
		return err
	}
	p.Release()
	_, err = c.report(message{Kind: released, From: from})
	return err
}

// write writes to the resource if the holder's own check finds the permit held.
// Some writes skip the check, as if they had been sent before the permit was
// lost; rejecting those is left to the guard. A rejected write ends the usage.
func (c *caller) write(p sema.Permit) (held bool, err error) {
	fence := fenceOf(p)
	confirmedAt := time.Now() // before the check, so that a pause in between does not count
	if c.rng.IntN(3) == 0 {
		confirmedAt = time.Time{}
	} else if p.Err() != nil {
		_, err := c.report(message{Kind: lost})
		return false, err
	}
	admitted, err := c.report(message{Kind: writes, Fence: fence, Confirmed: confirmedAt})
	if err != nil || admitted {
		return err == nil, err
	}
	_, err = c.report(message{Kind: lost})
	return false, err
}
