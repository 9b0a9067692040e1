package remotestore

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// A workload uses a semaphore with a capacity of five from several goroutines until it is
// stopped. It counts how often more than five permits are held.
type workload struct {
	client    *fleet.Client
	semaphore *fleet.Semaphore
	turns     atomic.Int64 // permits acquired and released
	inside    atomic.Int64 // permits held now
	over      atomic.Int64 // times that more than the capacity was held
	lost      atomic.Int64 // permits that were lost
	stop      context.CancelFunc
	wg        sync.WaitGroup
}

const workloadCapacity = 5

func newWorkload(t *testing.T, hosts ...string) *workload {
	t.Helper()
	store, err := Open(ctx, Options{Hosts: hosts, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	store.servers.turn.Store(0)
	c := &workload{client: fleet.New(store)}
	if c.semaphore, err = c.client.Semaphore("crowd", workloadCapacity); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	for range 16 {
		c.wg.Go(func() {
			for ctx.Err() == nil {
				p, err := c.semaphore.Acquire(ctx, 1)
				if ctx.Err() != nil {
					p.Release()
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if c.inside.Add(1) > workloadCapacity {
					c.over.Add(1)
				}
				time.Sleep(100 * time.Microsecond)
				if p.Err() != nil {
					c.lost.Add(1)
				}
				c.inside.Add(-1)
				c.turns.Add(1)
				p.Release()
			}
		})
	}
	return c
}

// awaitTurns waits until the workload has made this many more turns.
func (c *workload) awaitTurns(t *testing.T, turns int64) {
	t.Helper()
	from := c.turns.Load()
	await(t, "the workload makes progress", func() bool { return c.turns.Load() >= from+turns })
}

// end stops the workload, and fails if a permit was lost or more than the capacity was
// held.
func (c *workload) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.wg.Wait()
	if err := c.client.Close(limited(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	stats := c.semaphore.Stats()
	t.Logf("%d turns, %+v", c.turns.Load(), stats.Counts)
	if c.over.Load() > 0 || c.lost.Load() > 0 || stats.SessionsLost > 0 {
		t.Errorf("%d times more than %d permits held, %d permits and %d sessions lost", c.over.Load(), workloadCapacity, c.lost.Load(), stats.SessionsLost)
	}
}

// TestServers_TwoOfThreeKilled checks that clients continue and lose nothing while two of
// three servers are killed.
func TestServers_TwoOfThreeKilled(t *testing.T) {
	t.Parallel()
	backend := memstore.New()
	var servers []*service
	var hosts []string
	for range 3 {
		servers = append(servers, serve(t, backend, serving{}))
		hosts = append(hosts, servers[len(servers)-1].address)
	}
	c := newWorkload(t, hosts...)
	defer c.end(t)
	c.awaitTurns(t, 100)
	for _, s := range servers[:2] {
		s.kill(t)
		c.awaitTurns(t, 100)
	}
}

// TestServers_ShutdownFailsNoCall checks that a server that shuts down replies to the
// calls in flight. Later calls go to the other server.
func TestServers_ShutdownFailsNoCall(t *testing.T) {
	t.Parallel()
	backend := memstore.New()
	one, other := serve(t, backend, serving{}), serve(t, backend, serving{})
	c := newWorkload(t, one.address, other.address)
	defer c.end(t)
	c.awaitTurns(t, 100)
	if err := one.http.Shutdown(limited(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	c.awaitTurns(t, 100)
	if failures := c.semaphore.Stats().Failures; failures > 0 {
		t.Errorf("%d calls have failed", failures)
	}
}

// TestServers_RestartOfTheOnlyServer restarts the only server. Sessions survive, since
// they are in the store.
func TestServers_RestartOfTheOnlyServer(t *testing.T) {
	t.Parallel()
	backend := memstore.New()
	server := serve(t, backend, serving{})
	c := newWorkload(t, server.address)
	defer c.end(t)
	for range 3 {
		c.awaitTurns(t, 100)
		server.kill(t)
		server = serve(t, backend, serving{address: server.address})
	}
	c.awaitTurns(t, 100)
}

// TestServers_KilledWithTheirStore kills a server with its store. The next server
// continues with the same file.
func TestServers_KilledWithTheirStore(t *testing.T) {
	t.Parallel()
	backend := "sqlite://" + filepath.Join(t.TempDir(), "fleet.db") + "?synchronous=normal"
	server := startServer(t, "127.0.0.1:0", backend)
	address := server.Receive()
	c := newWorkload(t, address)
	defer c.end(t)
	for range 3 {
		c.awaitTurns(t, 50)
		server.End()
		server = startServer(t, address, backend)
		server.Receive()
	}
	c.awaitTurns(t, 50)
}

// TestListen_NotifiesWaitersOfOtherServers checks that a waiter is notified through the
// service, and does not wait for its next heartbeat.
func TestListen_NotifiesWaitersOfOtherServers(t *testing.T) {
	t.Parallel()
	backend := memstore.New()
	one, other := serve(t, backend, serving{}), serve(t, backend, serving{})
	var gates []*fleet.Semaphore
	for _, address := range []string{one.address, other.address} {
		client, err := fleet.Open(ctx, "sema://"+address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(ctx) })
		gate, err := client.Semaphore("a", 1, fleet.TTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		gates = append(gates, gate)
	}
	for i := range 20 {
		p, err := gates[i%2].Acquire(limited(t, 20*time.Second), 1)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 1)
		go func() {
			p, err := gates[(i+1)%2].Acquire(limited(t, 20*time.Second), 1)
			p.Release()
			next <- err
		}()
		await(t, "the other client waits", func() bool { s, err := backend.Inspect(ctx, "a"); return err == nil && len(s.Queue) > 0 })
		p.Release()
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	}
}
