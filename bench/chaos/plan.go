//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
)

// A plan describes how faults are injected into a store.
type plan struct {
	duration time.Duration
	ttl      time.Duration
	capacity int64
	seed     uint64
	massKill int    // number of clients that are killed at once; 0: none
	only     string // inject only faults whose name contains this; "": all
	log      func(string)
}

const (
	processes = 4
	callers   = 8 // per process
)

// maxRecovery returns how long a waiter may wait after the last fault ended. In
// that time leases of killed workers expire, a promoted server grants nothing
// for a TTL and three seconds, and the waiters ahead are served.
func (p plan) maxRecovery() time.Duration { return 3*p.ttl + 6*time.Second }

// run starts a store and workers, injects faults and returns a report.
func (p plan) run(e setup) (r report, err error) {
	err = storetest.Run(func(s *storetest.Scope) {
		target := e.start(s, p.ttl)
		resource := newResource(s)
		workers := newWorkerSet(s, p.seed, assignment{
			URL: target.url, PartitionedURL: target.partitionedURL, API: target.api, Socket: resource.socket, Capacity: p.capacity, TTL: p.ttl, Callers: callers,
		})
		for range processes {
			workers.start()
		}
		start := time.Now()
		faults := slices.DeleteFunc(append(target.faults, workerFaults(workers)...), func(f fault) bool { return !strings.Contains(f.name, p.only) })
		if len(faults) == 0 {
			s.Fatalf("no fault has %q in its name", p.only)
		}
		r.faults = p.injectFaults(start, faults, workers)
		r.stuck = p.awaitRecovery(resource)
		r.elapsed = time.Since(start)
		r.failures = workers.stop(p.maxRecovery() + 3*p.ttl)
		r.missing, r.freeAfter = p.awaitFree(s, target.direct)
		r.evaluate(p, resource)
	})
	return r, err
}

// awaitRecovery waits until all current waiters are served. It returns how many
// are not served within maxRecovery.
func (p plan) awaitRecovery(r *resource) (stuck int) {
	healed := time.Now()
	for {
		stuck = r.waitingSince(healed)
		if stuck == 0 || time.Since(healed) > p.maxRecovery() {
			return stuck
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// injectFaults injects faults one after the other, each at least once if there
// is enough time, with pauses without a fault in between.
func (p plan) injectFaults(start time.Time, faults []fault, workers *workerSet) (happened []string) {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	killed := p.massKill == 0
	for time.Since(start) < p.duration {
		for _, i := range rng.Perm(len(faults)) {
			if time.Since(start) >= p.duration {
				break
			}
			if !killed && time.Since(start) > p.duration/2 {
				killed = true
				happened = append(happened, p.inject(massKill(workers, p.massKill)))
			}
			time.Sleep(p.ttl + time.Duration(rng.Int64N(int64(p.ttl))))
			happened = append(happened, p.inject(faults[i]))
		}
	}
	return happened
}

func (p plan) inject(f fault) string {
	p.log("  " + f.name)
	f.begin()
	time.Sleep(f.duration)
	if f.end != nil {
		f.end()
	}
	return f.name
}

// awaitFree waits until the whole capacity is free after all workers ended. It
// returns the weight still in use and the time it took. Leases of killed
// workers may take 1.2 TTLs to expire.
func (p plan) awaitFree(s *storetest.Scope, url string) (missing int64, freeAfter time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), p.maxRecovery())
	defer cancel()
	client, err := fleet.Open(ctx, url)
	if err != nil {
		s.Fatalf("%v", err)
	}
	defer client.Close(context.Background(), fleet.CloseRelease)
	gate, err := client.Semaphore(semaphoreName, p.capacity, fleet.TTL(p.ttl))
	if err != nil {
		s.Fatalf("%v", err)
	}
	for {
		permit, err := gate.TryAcquire(ctx, p.capacity)
		if err == nil {
			permit.Release()
			return 0, time.Since(start)
		}
		if !errors.Is(err, sema.ErrFull) && !errors.Is(err, sema.ErrUnavailable) { // ErrUnavailable: the store cannot decide yet
			s.Fatalf("%v", err)
		}
		if ctx.Err() != nil || time.Since(start) > p.maxRecovery()-p.ttl {
			info, err := client.Info(context.Background(), semaphoreName)
			if err != nil {
				s.Fatalf("%v", err)
			}
			p.log(fmt.Sprintf("  still in use: %+v", info))
			return info.InUse, time.Since(start)
		}
		time.Sleep(p.ttl / 10)
	}
}
