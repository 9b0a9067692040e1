package growth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
	"github.com/sema-go/sema/x/server"
	_ "github.com/sema-go/sema/x/stores" // registers the stores by URL scheme
)

// A place is a kind of store. Each measurement has a new one, so that sizes do not add up.
type place struct {
	name string
	open func() *opened
}

// An opened store is shared by the clients of a measurement.
type opened struct {
	store fleet.Store
	used  func() float64 // bytes that the store occupies; nil in memory, where the client is
	close func()
}

// client returns a client of the store. Closing it leaves the store open.
func (o *opened) client() *fleet.Client { return fleet.New(shared{o.store}) }

// create creates a semaphore that no client uses.
func (o *opened) create(name string) {
	by := protocol.Opener{Client: protocol.Client{Instance: "growth"}, Owner: protocol.Owner{Key: protocol.NewKey()}}
	config := protocol.Config{Capacity: 10, TTL: protocol.Micros(15 * time.Second / time.Microsecond)}
	session, _, err := o.store.Open(background, name, config, by)
	must(err)
	_, err = o.store.Apply(background, name, protocol.Batch{Session: session, Owner: by.Owner, Seq: 1, End: true})
	must(err)
}

// A shared store ignores Close, so that several clients can use it.
type shared struct{ fleet.Store }

func (shared) Close() error { return nil }

var background = context.Background()

// places returns the stores that are measured.
func places(s *storetest.Scope) []place {
	all := []place{
		{"in memory", func() *opened {
			return &opened{memstore.New(), nil, func() {}}
		}},
		{"SQLite", func() *opened {
			dir, err := os.MkdirTemp("", "sema-growth")
			must(err)
			file := filepath.Join(dir, "fleet.db")
			store, err := fleet.OpenStore(background, "sqlite://"+file)
			must(err)
			used := func() (sum float64) {
				for _, name := range []string{file, file + "-wal"} {
					if info, err := os.Stat(name); err == nil {
						sum += float64(info.Size())
					}
				}
				return sum
			}
			return &opened{store, used, func() { must(store.Close()); os.RemoveAll(dir) }}
		}},
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Fprintln(os.Stderr, "redis-server is not installed: Redis is not measured")
		return all
	}
	server := sync.OnceValue(func() *redistest.Server { return redistest.Start(s) })
	prefixes := 0
	return append(all, place{"Redis", func() *opened {
		o, err := rueidis.ParseURL(server().URL())
		must(err)
		o.DisableCache = true
		direct, err := rueidis.NewClient(o)
		must(err)
		// After a FLUSHALL, a server would grant nothing for a TTL.
		prefixes++
		store, err := fleet.OpenStore(background, fmt.Sprintf("%s?prefix=g%d:", server().URL(), prefixes))
		must(err)
		used := func() float64 {
			text, err := direct.Do(background, direct.B().Info().Section("memory").Build()).ToString()
			must(err)
			_, rest, _ := strings.Cut(text, "used_memory:")
			digits, _, _ := strings.Cut(rest, "\r")
			n, err := strconv.ParseFloat(digits, 64)
			must(err)
			return n
		}
		return &opened{store, used, func() { must(store.Close()); direct.Close() }}
	}})
}

// inStores returns a contender for each place.
func inStores(s *storetest.Scope, sizes []int, at func(o *opened, size int) float64) (all []contender) {
	for _, p := range places(s) {
		all = append(all, contender{name: p.name, sizes: sizes, at: func(size int) float64 {
			o := p.open()
			defer o.close()
			return at(o, size)
		}})
	}
	return all
}

// storeCurves returns the curves of fleet semaphores and of the service.
func storeCurves(s *storetest.Scope) []curve {
	const unit = "µs"
	return []curve{
		{name: "fleet-waiters", title: "A release while callers wait in a fleet", size: "waiters", unit: unit, limit: flat,
			runs: inStores(s, tenfold(10, 100_000), queuedHandOffs)},
		{name: "fleet-semaphores", title: "An acquire and a release, other semaphores in the store", size: "semaphores", unit: unit, limit: flat,
			note: "The rivals are mutexes of their own keys, while that many others are held.",
			runs: append(inStores(s, tenfold(10, 100_000), func(o *opened, n int) float64 { fill(o, n); return pairs(o.client(), "x") }), mutexes(s)...)},
		{name: "fleet-list", title: "A page of the list of semaphores", size: "semaphores", unit: unit, limit: flat, note: "The server also lists all semaphores, for metrics and history: once it has started, and in at most a twentieth of the time after that. A page that comes meanwhile waits for the part that the store is serving, 100 semaphores of SQLite or 1,000 of Redis, and takes up to 4 ms.",
			runs: inStores(s, tenfold(100, 100_000), func(o *opened, n int) float64 { fill(o, n); return page(o, "/v1/semaphores?limit=100") })},
		{name: "dashboard", title: "The overview of the dashboard", size: "semaphores", unit: unit, limit: flat, note: "One listing of all semaphores a second serves all viewers. It is not part of a page, but runs on the same cores. The number of rows rises up to the 500 of a page.",
			runs: inStores(s, tenfold(100, 100_000), func(o *opened, n int) float64 { fill(o, n); return page(o, "/ui/") })},
		{name: "fleet-clients", title: "An acquire and a release, other clients hold permits of the semaphore", size: "clients", unit: unit, limit: flat,
			runs: inStores(s, tenfold(1, 1000), besideClients)},
		{name: "fleet-leases", title: "An acquire and a release by a client that holds permits", size: "permits held", unit: unit, limit: flat,
			runs: inStores(s, tenfold(1, 10_000), besideLeases)},
		{name: "fleet-changes", title: "An acquire and a release, after changes of the configuration", size: "changes", unit: unit, limit: flat,
			runs: inStores(s, tenfold(1, 1000), afterChanges)},
	}
}

// open returns a semaphore of a client.
func open(c *fleet.Client, name string, capacity int64, opts ...fleet.Option) *fleet.Semaphore {
	sem, err := c.Semaphore(name, capacity, opts...)
	must(err)
	return sem
}

func hold(g sema.Gate) sema.Permit {
	p, err := g.Acquire(background, 1)
	must(err)
	return p
}

func finish(c *fleet.Client) { must(c.Close(background, fleet.CloseRelease)) }

// fill creates n semaphores.
func fill(o *opened, n int) {
	together(n, func(i int) { o.create(fmt.Sprintf("s%06d", i)) })
}

// pairs returns the time in which one caller acquires a permit, and the store confirms its
// release. It closes the client.
func pairs(c *fleet.Client, name string) float64 {
	const times = 200
	defer finish(c)
	sem := open(c, name, 100_000)
	must(fleet.Release(background, hold(sem)))
	return medianTime(times, func() { must(fleet.Release(background, hold(sem))) })
}

// medianTime returns the median of the times of f, in microseconds. What else happens now and
// then, such as heartbeats and samples of the history, would dominate a mean.
func medianTime(times int, f func()) float64 {
	took := make([]float64, times)
	for i := range took {
		began := time.Now()
		f()
		took[i] = float64(time.Since(began).Nanoseconds()) / 1000
	}
	return median(took)
}

// queuedHandOffs passes one permit from waiter to waiter.
func queuedHandOffs(o *opened, waiters int) float64 {
	grants := min(waiters, 500)
	ctx, stop := context.WithCancel(background)
	c := o.client()
	defer finish(c)
	sem := open(c, "x", 1)
	first := hold(sem)
	var all sync.WaitGroup
	passed := make(chan struct{}, waiters)
	for range waiters {
		all.Go(func() {
			p, err := sem.Acquire(ctx, 1)
			if err != nil {
				return
			}
			passed <- struct{}{}
			p.Release()
		})
	}
	for queued := 0; queued < waiters; time.Sleep(10 * time.Millisecond) {
		now, err := o.store.Inspect(background, "x")
		must(err)
		queued = len(now.Queue)
	}
	began := time.Now()
	first.Release()
	for range grants {
		<-passed
	}
	took := time.Since(began)
	stop()
	all.Wait()
	return float64(took.Microseconds()) / float64(grants)
}

// besideClients measures with n more clients that hold a permit each.
func besideClients(o *opened, n int) float64 {
	var all sync.WaitGroup
	clients := make([]*fleet.Client, n)
	for i := range clients {
		clients[i] = o.client()
		all.Go(func() { hold(open(clients[i], "x", 100_000)) }) //semavet:ignore the client releases it
	}
	all.Wait()
	took := pairs(o.client(), "x")
	for _, c := range clients {
		all.Go(func() { finish(c) })
	}
	all.Wait()
	return took
}

// holdMany acquires n permits, each a lease.
func holdMany(sem *fleet.Semaphore, n int) {
	together(n, func(int) { hold(sem) }) //semavet:ignore the client releases it
}

func besideLeases(o *opened, n int) float64 {
	c := o.client()
	holdMany(open(c, "x", 100_000), n)
	return pairs(c, "x")
}

func afterChanges(o *opened, n int) float64 {
	c := o.client()
	hold(open(c, "x", 100_000)).Release()
	for i := range n {
		must(c.Configure(background, "x", func(of *fleet.Config) { of.Capacity = 100_000 + int64(i%2) }))
	}
	must(c.Configure(background, "x", func(of *fleet.Config) { of.Capacity = 100_000 }))
	return pairs(c, "x")
}

// page returns the time of a request to the service.
func page(o *opened, address string) float64 {
	const times = 1000 // most of them after the server has listed all semaphores for the first time
	s, err := server.New(o.store, server.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(err)
	get := func() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", address, nil)
		r.Host = "localhost"
		if s.ServeHTTP(w, r); w.Code != http.StatusOK {
			panic(fmt.Sprintf("%s: status %d: %s", address, w.Code, w.Body))
		}
	}
	get()
	took := medianTime(times, get)
	must(s.Close(background))
	return took
}
