package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A resource is protected by a semaphore. It checks fences, and counts the holders that
// use it.
type resource struct {
	capacity int
	guard    fleet.Guard

	mu       sync.Mutex
	at       map[protocol.Seq]bool // holders that use the resource
	over     int                   // times that there were more than capacity
	rejected int                   // writes that the guard rejected
	most     int                   // highest number of holders at a time
}

// admit records a write of a holder, and reports whether the guard admits it.
func (g *resource) admit(f protocol.Fence) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard.Admit(f) != nil {
		g.rejected++
		return false
	}
	g.at[f.Seq] = true
	g.most = max(g.most, len(g.at))
	if len(g.at) > g.capacity {
		g.over++
	}
	return true
}

func (g *resource) leave(f protocol.Fence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.at, f.Seq)
}

// work acquires a permit, writes for a while as long as the permit is held, and releases
// it, until ctx ends. It calls granted after each grant.
func (g *resource) work(ctx context.Context, s *fleet.Semaphore, granted func()) {
	for ctx.Err() == nil {
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			continue
		}
		granted()
		g.write(ctx, p)
		p.Release()
	}
}

func (g *resource) write(ctx context.Context, p sema.Permit) {
	lease, _ := fleet.LeaseOf(p)
	defer g.leave(lease.Fence)
	for range 10 {
		if p.Err() != nil || !g.admit(lease.Fence) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Lost():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A partition is a primary, its replica and Sentinels, with proxies that can cut off the
// primary. Clients inside the partition reach the primary directly.
type partition struct {
	primary, replica *redistest.Server
	sentinels        []*redistest.Server
	proxies          [2]*storetest.Proxy // for its replica, and for all others
	inside, outside  string              // URLs
}

const (
	partitionCapacity = 3
	partitionTTL      = 1500 * time.Millisecond
	// A replica that has sent nothing for three seconds no longer counts. The primary
	// notices that within two more.
	partitionLag       = "3"
	partitionPromotion = 5 * time.Second
)

func newPartition(t *testing.T) *partition {
	t.Helper()
	p := &partition{primary: redistest.Start(t, "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1", "--min-replicas-max-lag", partitionLag)}
	for i := range p.proxies {
		p.proxies[i] = storetest.NewProxy(t, p.primary.Address)
	}
	p.replica = redistest.Start(t, "--replicaof", fmt.Sprint("127.0.0.1 ", p.proxies[0].Port), "--repl-diskless-sync-delay", "0")
	p.replica.Await("master_link_status:up", "INFO", "replication")
	p.primary.Await("min_slaves_good_slaves:1", "INFO", "replication")
	p.sentinels = redistest.Sentinels(t, 3, p.proxies[1].Port)
	for _, s := range p.sentinels {
		s.Await("num-slaves\n1", "SENTINEL", "MASTER", "main")
	}
	p.inside = fmt.Sprintf("redis://%s?promotion=%v", p.primary.Address, partitionPromotion)
	p.outside = fmt.Sprintf("redis://%s?sentinel=main&promotion=%v", p.sentinels[0].Address, partitionPromotion)
	return p
}

// setCutOff cuts off the primary, or reconnects it.
func (p *partition) setCutOff(cutOff bool) {
	for _, w := range p.proxies {
		w.SetFault(storetest.Fault{LoseRequests: cutOff, LoseReplies: cutOff})
	}
}

// awaitPromotion waits until all Sentinels name the replica as the primary.
func (p *partition) awaitPromotion() {
	for _, s := range p.sentinels {
		s.Await(fmt.Sprint(p.replica.Port), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
	}
}

func (p *partition) semaphore(t *testing.T, url string) *fleet.Semaphore {
	t.Helper()
	client := fleet.New(openURL(t, url))
	t.Cleanup(func() {
		closing, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer stop()
		_ = client.Close(closing, fleet.CloseAbandon)
	})
	s, err := client.Semaphore("db", partitionCapacity, fleet.TTL(partitionTTL))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPartition_NeverExceedsTheCapacity cuts off a primary with some of its clients. It
// grants permits for as long as it counts its replica as good. The promoted one grants
// nothing until no holder relies on such a grant any more.
func TestPartition_NeverExceedsTheCapacity(t *testing.T) {
	t.Parallel()
	p := newPartition(t)
	shared := &resource{capacity: partitionCapacity, at: map[protocol.Seq]bool{}}
	var inside, outside atomic.Int64 // grants
	working, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	start := func(url string, grants *atomic.Int64) {
		for range 2 {
			semaphore := p.semaphore(t, url)
			for range 4 {
				wg.Go(func() { shared.work(working, semaphore, func() { grants.Add(1) }) })
			}
		}
	}
	await := func(grants *atomic.Int64, more int64) {
		t.Helper()
		before := grants.Load()
		for began := time.Now(); grants.Load() < before+more; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 40*time.Second {
				t.Fatal("nothing is granted within 40s")
			}
		}
	}
	start(p.inside, &inside)
	await(&inside, 20)
	p.setCutOff(true)
	await(&inside, 20)
	p.awaitPromotion()
	start(p.outside, &outside)
	await(&outside, 20)
	// The old primary runs, and does not grant.
	if _, err := p.primary.Do("SET", "something", "1"); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("error %v of the old primary, want NOREPLICAS", err)
	}
	before := inside.Load()
	p.setCutOff(false)
	await(&outside, 20)
	stop()
	if late := inside.Load() - before; late > 0 {
		t.Errorf("the old primary granted %d permits after the new one did", late)
	}
	if shared.over > 0 || shared.rejected > 0 || shared.most < partitionCapacity {
		t.Errorf("up to %d holders of %d permits, %d times too many; %d writes were rejected", shared.most, partitionCapacity, shared.over, shared.rejected)
	}
}

// TestPartition_ResumedPrimaryGrantsNothing suspends a primary while another one is
// promoted. It resumes before it notices that its replica has sent nothing.
func TestPartition_ResumedPrimaryGrantsNothing(t *testing.T) {
	t.Parallel()
	p := newPartition(t)
	config := protocol.Config{Capacity: partitionCapacity, TTL: protocol.Micros(partitionTTL.Microseconds())}
	inside := sessiontest.Begin(t, openURL(t, p.inside), "db", config)
	inside.Granted(1, sessiontest.Acquire(1, 1))
	inside.Send(sessiontest.Release(inside.LastLease()))
	p.primary.Must("WAIT", "1", "5000")

	p.setCutOff(true)
	p.primary.Pause()
	p.awaitPromotion()
	outside := p.semaphore(t, p.outside)
	shared := &resource{capacity: partitionCapacity, at: map[protocol.Seq]bool{}}
	for range partitionCapacity {
		permit, err := outside.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		lease, _ := fleet.LeaseOf(permit)
		shared.admit(lease.Fence)
	}
	type result struct {
		protocol.Reply
		error
	}
	results := make(chan result)
	go func() {
		r, err := inside.Store.Apply(ctx, "db", inside.Next(sessiontest.Acquire(2, 1)))
		results <- result{r, err}
	}()
	time.Sleep(100 * time.Millisecond) // the request has arrived when the primary resumes
	p.primary.Continue()
	a := <-results
	for _, f := range a.Results {
		if f.Kind == protocol.Granted {
			t.Errorf("the old primary grants lease %d, while %d of %d are held", f.Lease, len(shared.at), partitionCapacity)
		}
	}
	if a.error == nil || !strings.Contains(a.error.Error(), "NOREPLICAS") {
		t.Errorf("error %v, want NOREPLICAS", a.error)
	}
}
