package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

// The callers of an open loop arrive at random, whatever happens to those before them, as
// the requests of a service do. The loop runs in virtual time: where nothing but the order
// of waiters matters, results do not depend on the machine. In real time, a machine that
// stalls for some milliseconds would queue more callers than the load does.
const (
	loopPermits = 8
	loopHold    = time.Millisecond
	loopFor     = 10 * time.Second
)

func init() { roles["open-loop"] = openLoopRole }

// A user acquires a permit, calls work and releases. It returns the error of ctx if that
// ends first.
type user func(ctx context.Context, work func()) error

type namedUser struct {
	name string
	make func(capacity int64) user
}

var users = []namedUser{
	{semaSemaphore.name, semaphoreUser(sema.Fair)},
	{semaUnfair.name, semaphoreUser(sema.Unfair)},
	{semaLIFO.name, semaphoreUser(sema.LIFO)},
	{xsync.name, func(capacity int64) user {
		s := semaphore.NewWeighted(capacity)
		return func(ctx context.Context, work func()) error {
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			work()
			s.Release(1)
			return nil
		}
	}},
	{channel.name, func(capacity int64) user {
		slots := make(chan struct{}, capacity)
		return func(ctx context.Context, work func()) error {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			work()
			<-slots
			return nil
		}
	}},
}

func semaphoreUser(order sema.Order) func(int64) user {
	return func(capacity int64) user {
		s := sema.New(capacity, order)
		return func(ctx context.Context, work func()) error {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				return err
			}
			work()
			p.Release()
			return nil
		}
	}
}

// openLoop returns how long those callers wait that are served. Together they need the
// permits for the fraction utilisation of the time. Each gives up after timeout; 0s means
// never. In each round all implementations get the same arrivals.
func openLoop(utilisation, timeout string) []impl {
	var impls []impl
	for _, u := range users {
		seed := 0
		impls = append(impls, impl{u.name, func() sample {
			seed++
			var all []time.Duration
			runInBubble(&all, "open-loop", u.name, utilisation, timeout, strconv.Itoa(seed))
			return sample{ops: len(all), elapsed: loopFor}.withWaits(all)
		}})
	}
	return impls
}

// openLoopRole runs an open loop and prints the waits of the callers that were served. A
// bubble of package synctest needs a test, so it runs in a process of its own.
func openLoopRole(args []string) {
	i := slices.IndexFunc(users, func(u namedUser) bool { return u.name == args[0] })
	utilisation, err := strconv.ParseFloat(args[1], 64)
	must(err)
	timeout, err := time.ParseDuration(args[2])
	must(err)
	seed, err := strconv.ParseUint(args[3], 10, 64)
	must(err)
	printFromBubble(func() any {
		return arrive(rand.New(rand.NewPCG(seed, 0)), utilisation, timeout, users[i].make(loopPermits))
	})
}

// printFromBubble prints the result of run, in virtual time, as JSON. It ends the process.
func printFromBubble(run func() any) {
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "bubble", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { must(json.NewEncoder(os.Stdout).Encode(run())) })
	}}}, nil, nil)
}

// runInBubble starts this program in a role that calls printFromBubble, and decodes what it
// prints.
func runInBubble(result any, role ...string) {
	program, err := os.Executable()
	must(err)
	cmd := exec.Command(program, role...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	must(json.NewDecoder(out).Decode(result))
	io.Copy(io.Discard, out) // what package testing prints
	must(cmd.Wait())
}

// arrive starts callers and returns the waits of those that are served.
func arrive(rng *rand.Rand, utilisation float64, timeout time.Duration, use user) (all []time.Duration) {
	gap := float64(loopHold) / loopPermits / utilisation
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for time.Since(start) < loopFor {
		wg.Go(func() {
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if timeout != 0 {
				ctx, cancel = context.WithTimeout(ctx, timeout)
			}
			defer cancel()
			arrived := time.Now()
			use(ctx, func() {
				wait := time.Since(arrived)
				time.Sleep(loopHold)
				mu.Lock()
				all = append(all, wait)
				mu.Unlock()
			})
		})
		time.Sleep(time.Duration(rng.ExpFloat64() * gap))
	}
	wg.Wait()
	return all
}
