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

// A crowd is goroutines that use a semaphore of five for as long as they can, and
// notes whether there were ever more than five at a time.
type crowd struct {
	client    *fleet.Client
	semaphore *fleet.Semaphore
	turns     atomic.Int64
	inside    atomic.Int64
	over      atomic.Int64
	lost      atomic.Int64
	stop      context.CancelFunc
	wg        sync.WaitGroup
}

const crowdCapacity = 5

func newCrowd(t *testing.T, hosts ...string) *crowd {
	t.Helper()
	store, err := Open(ctx, Options{Hosts: hosts, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	store.servers.current.Store(0)
	c := &crowd{client: fleet.New(store)}
	if c.semaphore, err = c.client.Semaphore("crowd", crowdCapacity); err != nil {
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
				if c.inside.Add(1) > crowdCapacity {
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

// goOn waits until there were so many more turns.
func (c *crowd) goOn(t *testing.T, turns int64) {
	t.Helper()
	from := c.turns.Load()
	await(t, "the crowd goes on", func() bool { return c.turns.Load() >= from+turns })
}

func (c *crowd) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.wg.Wait()
	if err := c.client.Close(limited(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	stats := c.semaphore.Stats()
	t.Logf("%d turns, %+v", c.turns.Load(), stats.Counts)
	if c.over.Load() > 0 || c.lost.Load() > 0 || stats.SessionsLost > 0 {
		t.Errorf("%d times more than %d at a time, %d permits and %d sessions lost", c.over.Load(), crowdCapacity, c.lost.Load(), stats.SessionsLost)
	}
}

// TestThreeServersOneKilled: whoever uses them goes on, and loses nothing.
func TestThreeServersOneKilled(t *testing.T) {
	t.Parallel()
	engine := memstore.New()
	var servers []*service
	var hosts []string
	for range 3 {
		servers = append(servers, serve(t, engine, serving{}))
		hosts = append(hosts, servers[len(servers)-1].address)
	}
	c := newCrowd(t, hosts...)
	defer c.end(t)
	c.goOn(t, 100)
	for _, s := range servers[:2] {
		s.kill(t)
		c.goOn(t, 100)
	}
}

// TestAServerThatShutsDownFailsNobody: what is on its way is answered, and the rest
// goes to the other.
func TestAServerThatShutsDownFailsNobody(t *testing.T) {
	t.Parallel()
	engine := memstore.New()
	one, other := serve(t, engine, serving{}), serve(t, engine, serving{})
	c := newCrowd(t, one.address, other.address)
	defer c.end(t)
	c.goOn(t, 100)
	if err := one.http.Shutdown(limited(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	c.goOn(t, 100)
	if failures := c.semaphore.Stats().Failures; failures > 0 {
		t.Errorf("%d calls have failed", failures)
	}
}

// TestAServerIsRestarted where there is no other. Sessions are the engine's, which
// lives.
func TestAServerIsRestarted(t *testing.T) {
	t.Parallel()
	engine := memstore.New()
	server := serve(t, engine, serving{})
	c := newCrowd(t, server.address)
	defer c.end(t)
	for range 3 {
		c.goOn(t, 100)
		server.kill(t)
		server = serve(t, engine, serving{address: server.address})
	}
	c.goOn(t, 100)
}

// TestAServerIsKilledWithItsEngine: by the system, with a file that the next one goes
// on with.
func TestAServerIsKilledWithItsEngine(t *testing.T) {
	t.Parallel()
	engine := "sqlite://" + filepath.Join(t.TempDir(), "fleet.db") + "?synchronous=normal"
	server := startServer(t, "127.0.0.1:0", engine)
	address := server.Hear()
	c := newCrowd(t, address)
	defer c.end(t)
	for range 3 {
		c.goOn(t, 50)
		server.End()
		server = startServer(t, address, engine)
		server.Hear()
	}
	c.goOn(t, 50)
}

// TestAWaiterIsToldThroughTheService, and does not wait for its next sign of life.
func TestAWaiterIsToldThroughTheService(t *testing.T) {
	t.Parallel()
	engine := memstore.New()
	one, other := serve(t, engine, serving{}), serve(t, engine, serving{})
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
		await(t, "the other waits", func() bool { s, err := engine.Inspect(ctx, "a"); return err == nil && len(s.Queue) > 0 })
		p.Release()
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	}
}
