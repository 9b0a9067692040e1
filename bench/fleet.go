package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	_ "github.com/sema-go/sema/x/stores" // registers the stores by URL scheme
)

func init() { suites["fleet"] = fleetScenarios }

// storeURL is the URL of the store to measure; "" means all stores, SQLite with a
// new file.
var storeURL string

func registerFleetFlags(flags *flag.FlagSet) {
	flags.StringVar(&storeURL, "store", "", "fleet: URL of the store (default: all stores, each with a new server or file)")
}

// fleetScenarios returns the scenarios of the store in storeURL or, if that is
// empty, of all stores.
func fleetScenarios() []scenario {
	if storeURL == "" {
		return slices.Concat(newFleetBench().scenarios(), redisScenarios(), postgresScenarios(), etcdScenarios())
	}
	return newFleetBench().scenarios()
}

func (f *fleetBench) scenarios() []scenario {
	return []scenario{
		{
			name:  "fleet-exact",
			about: "256 goroutines acquire + release, each permit a durable lease of its own",
			impls: []impl{f.exact(sqliteName, f.open), {"raw SQLite, same rows and batches", f.raw}, f.exact("sema/fleet, in memory", openMemory)},
			targets: []target{
				{impl: sqliteName, rival: "raw SQLite, same rows and batches", limit: 2},
				{impl: sqliteName, limit: 50, value: func(r row) float64 { return r.NsOp / 1e3 }, unit: "µs a pair"},
			},
		},
		{
			name:    "fleet-pooled",
			about:   "one goroutine, acquire + release of a pooled fleet semaphore",
			impls:   []impl{{"sema/fleet, pooled", f.pooled}, {"local Semaphore", localPairs}},
			targets: []target{{impl: "sema/fleet, pooled", rival: "local Semaphore", limit: 3}},
		},
		{
			name:  "fleet-hand-off",
			about: "from a release to the acquire of another waiting client, both idle before",
			impls: []impl{{"sema/fleet", f.handOff}, {"one fsync on the same disk", f.oneSync}},
			targets: []target{
				{impl: "sema/fleet", rival: "one fsync on the same disk", limit: 1.5, value: func(r row) float64 { return r.P99 }, unit: "p99"},
				{impl: "sema/fleet", limit: 1, value: func(r row) float64 { return r.P99 / 1e6 }, unit: "p99 in ms"},
			},
		},
		{
			name:    "fleet-herd",
			about:   "1,000 clients wait for one permit and pass it on",
			impls:   []impl{{"sema/fleet", f.herd}},
			targets: []target{{impl: "sema/fleet", limit: 1, value: func(r row) float64 { return r.Count }, unit: "wake-ups a grant"}},
		},
		{
			name:    "fleet-heartbeats",
			about:   "100,000 leases over 100 semaphores are kept alive, TTL 30 s: processor time, store included",
			impls:   []impl{{"sema/fleet", f.heartbeats}},
			targets: []target{{impl: "sema/fleet", limit: 1, value: func(r row) float64 { return r.Count }, unit: "% of one core"}},
		},
	}
}

const sqliteName = "sema/fleet, durable"

// A fleetBench has a store, and a directory that is left to the system's
// cleanup.
type fleetBench struct {
	url            string
	dir            string
	names          atomic.Int64
	perTransaction float64 // acquire–release pairs per transaction in the last run of the durable store
	leased         bool    // the leases of heartbeats have been acquired
}

func newFleetBench() *fleetBench {
	dir, err := os.MkdirTemp("", "sema-bench")
	must(err)
	f := &fleetBench{url: storeURL, dir: dir}
	if f.url == "" {
		f.url = "sqlite://" + filepath.Join(dir, "fleet.db")
	}
	return f
}

func (f *fleetBench) open() *fleet.Client {
	c, err := fleet.Open(context.Background(), f.url)
	must(err)
	return c
}

func openMemory() *fleet.Client { return fleet.New(memstore.New()) }

// semaphore returns a new semaphore.
func (f *fleetBench) semaphore(c *fleet.Client, capacity int64, opts ...fleet.Option) *fleet.Semaphore {
	s, err := c.Semaphore(fmt.Sprintf("bench-%d-%d", os.Getpid(), f.names.Add(1)), capacity, opts...)
	must(err)
	return s
}

// caller is the context of acquires. It can be cancelled, like that of most callers.
// Rivals get the context that is fastest for them.
var caller = context.Background()

func acquireOne(s sema.Gate) sema.Permit {
	p, err := s.Acquire(caller, 1)
	must(err)
	return p
}

// exact runs acquire and release in 256 goroutines, with permits for all of
// them.
func (f *fleetBench) exact(name string, open func() *fleet.Client) impl {
	const goroutines, each = 256, 60
	return impl{name, func() sample {
		c := open()
		s := f.semaphore(c, 1000)
		acquireOne(s).Release()
		before := s.Stats()
		measured := measure(goroutines*each, func() {
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range each {
						acquireOne(s).Release()
					}
				})
			}
			wg.Wait()
		})
		if name == sqliteName {
			f.perTransaction = float64(goroutines*each) / float64(s.Stats().Batches-before.Batches)
		}
		must(c.Delete(context.Background(), s.Name())) // so that the file does not grow from round to round
		must(c.Close(context.Background()))
		return measured
	}}
}

func (f *fleetBench) pooled() sample {
	c := f.open()
	s := f.semaphore(c, 10, fleet.ModePooled)
	acquireOne(s).Release()
	measured := gatePairs(s)
	must(c.Close(context.Background()))
	return measured
}

func localPairs() sample { return gatePairs(sema.New(10)) }

func gatePairs(g sema.Gate) sample {
	const pairs = 5_000_000
	return measure(pairs, func() {
		for range pairs {
			acquireOne(g).Release()
		}
	})
}

const handOffs = 300

// handOff makes two clients pass one permit back and forth, with pauses.
func (f *fleetBench) handOff() sample {
	a, b := f.open(), f.open()
	held := f.semaphore(a, 1)
	waiting, err := b.Semaphore(held.Name(), 1)
	must(err)
	took := make([]time.Duration, 0, handOffs)
	for range handOffs {
		p := acquireOne(held)
		granted := make(chan time.Time)
		go func() {
			q := acquireOne(waiting)
			granted <- time.Now()
			q.Release()
		}()
		for waiting.Stats().Waiters == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
		start := time.Now()
		p.Release()
		took = append(took, (<-granted).Sub(start))
		held, waiting = waiting, held
	}
	must(a.Close(context.Background()))
	must(b.Close(context.Background()))
	return sampleOf(took)
}

// oneSync writes a page to the end of a file and waits for the disk, with the pauses of
// handOff: no store that keeps what it acknowledges does less.
func (f *fleetBench) oneSync() sample {
	file, err := os.CreateTemp(f.dir, "one-fsync")
	must(err)
	defer os.Remove(file.Name())
	defer file.Close()
	page := make([]byte, 4096)
	took := make([]time.Duration, 0, handOffs)
	for range handOffs {
		time.Sleep(6 * time.Millisecond)
		start := time.Now()
		_, err := file.Write(page)
		must(err)
		must(syncData(file))
		took = append(took, time.Since(start))
	}
	return sampleOf(took)
}

// herd passes one permit through a thousand waiting clients, and counts their
// wake-ups.
func (f *fleetBench) herd() sample {
	const clients = 1000
	holder := f.open()
	s := f.semaphore(holder, 1)
	p := acquireOne(s)
	var all []*fleet.Client
	var sems []*fleet.Semaphore
	var wg sync.WaitGroup
	for range clients {
		c := f.open()
		waiting, err := c.Semaphore(s.Name(), 1, sema.MaxWait(10*time.Minute))
		must(err)
		all, sems = append(all, c), append(sems, waiting)
		wg.Go(func() { acquireOne(waiting).Release() })
	}
	for waiterCount(holder, s.Name()) < clients {
		time.Sleep(10 * time.Millisecond)
	}
	woken := func() (n int64) {
		for _, s := range sems {
			n += s.Stats().Notifications
		}
		return n
	}
	before := woken()
	measured := measure(clients, func() {
		p.Release()
		wg.Wait()
	})
	measured.count = float64(woken()-before) / clients
	for _, c := range append(all, holder) {
		must(c.Close(context.Background()))
	}
	return measured
}

func waiterCount(c *fleet.Client, name string) int {
	info, err := c.Info(context.Background(), name)
	must(err)
	return len(info.Waiters)
}

// heartbeats acquires a hundred thousand leases once. It then measures the
// processor time of the process while it only renews them.
func (f *fleetBench) heartbeats() sample {
	const semaphores, each, ttl = 100, 1000, 30 * time.Second
	if !f.leased {
		f.leased = true
		c := f.open() // never closed
		var wg sync.WaitGroup
		for range semaphores {
			s := f.semaphore(c, each, fleet.TTL(ttl))
			for range each {
				wg.Go(func() { acquireOne(s) }) //semavet:ignore they last as long as the client
			}
		}
		wg.Wait()
	}
	before, start := processorTime(), time.Now()
	time.Sleep(ttl / 3) // each session sends about one heartbeat meanwhile
	elapsed := time.Since(start)
	return sample{ops: 1, elapsed: elapsed, count: 100 * float64(processorTime()-before) / float64(elapsed)}
}
